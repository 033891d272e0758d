//! One request, as the wire saw it.

use std::time::Duration;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde_json::Value;

use super::Request;

/// A service of AWS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Service {
    /// SQS.
    Sqs,
    /// DynamoDB.
    DynamoDb,
    /// S3.
    S3,
    /// STS.
    Sts,
}

/// One request.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// Its place among all requests of this wire, from 1.
    pub(crate) seq: u64,
    /// When it arrived, since the wire began.
    pub(crate) at: Duration,
    /// Whose it is.
    pub(crate) service: Service,
    /// What it asks for, by AWS's name.
    pub(crate) operation: String,
    /// How many entries it carries: 1 when it is not a batch.
    pub(crate) entries: usize,
    /// What it is about: the queue's name, the table, or the bucket with its key.
    pub(crate) object: String,
    /// Its headers.
    pub(crate) headers: HeaderMap,
    /// Its body.
    pub(crate) body: Bytes,
    /// The status that the caller saw; none when there was no answer, or none yet.
    pub(crate) status: Option<u16>,
}

impl Call {
    pub(super) fn new(seq: u64, at: Duration, request: &Request) -> Self {
        let (service, operation) = operation(request);
        let body = request.body().clone();
        let json: Value = serde_json::from_slice(&body).unwrap_or_default();
        let object = match service {
            Service::Sqs => {
                let queue = json["QueueUrl"].as_str().or(json["QueueName"].as_str());
                queue.unwrap_or_default().rsplit('/').next().unwrap_or_default().to_owned()
            }
            Service::DynamoDb => json["TableName"].as_str().unwrap_or_default().to_owned(),
            Service::S3 => decoded(request.uri().path().trim_start_matches('/')),
            Service::Sts => String::new(),
        };
        let (entries, headers) = (entries(&json), request.headers().clone());
        Self { seq, at, service, operation, entries, object, headers, body, status: None }
    }

    /// Whether it is of this operation.
    pub(crate) fn is(&self, service: Service, operation: &str) -> bool {
        self.service == service && self.operation == operation
    }

    /// Its body as JSON; null when it is none.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A path without its percent signs.
fn decoded(path: &str) -> String {
    let mut parts = path.split('%');
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (code, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(code, 16).unwrap());
        bytes.extend(rest.as_bytes());
    }
    String::from_utf8(bytes).unwrap()
}

/// Entries of SQS's batches, items of DynamoDB's transactions and batches.
fn entries(json: &Value) -> usize {
    let listed = ["Entries", "TransactItems"].iter().find_map(|name| json[name].as_array());
    let by_table = || {
        let tables = json["RequestItems"].as_object()?;
        let items = tables.values().map(|table| table.get("Keys").unwrap_or(table).as_array());
        Some(items.map(|items| items.map_or(0, Vec::len)).sum())
    };
    listed.map(Vec::len).or_else(by_table).unwrap_or(1)
}

fn operation(request: &Request) -> (Service, String) {
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    if let Some((service, operation)) = header("x-amz-target").and_then(|t| t.split_once('.')) {
        let is_sqs = service == "AmazonSQS";
        let service = if is_sqs { Service::Sqs } else { Service::DynamoDb };
        return (service, operation.to_owned());
    }
    let is_form = header("content-type").is_some_and(|kind| kind.contains("form-urlencoded"));
    if is_form && request.uri().path() == "/" {
        let form = String::from_utf8_lossy(request.body());
        let action = form.split('&').find_map(|field| field.strip_prefix("Action="));
        return (Service::Sts, action.unwrap_or_default().to_owned());
    }
    (Service::S3, s3_operation(request))
}

/// S3 names no operation: method, path and query do. What is not known is called by them.
fn s3_operation(request: &Request) -> String {
    let (method, uri) = (request.method().as_str(), request.uri());
    let path = uri.path().trim_start_matches('/');
    let has_key = path.split_once('/').is_some_and(|(_, key)| !key.is_empty());
    let query: Vec<&str> = uri.query().unwrap_or_default().split('&').collect();
    let asks =
        |name: &str| query.iter().any(|part| part.split('=').next().is_some_and(|n| n == name));
    let copies = request.headers().contains_key("x-amz-copy-source");
    let sub = ["versioning", "encryption", "publicAccessBlock", "lifecycle", "location", "delete"];
    let name = match (method, has_key, sub.into_iter().find(|name| asks(name))) {
        ("PUT", true, None) if copies => "CopyObject",
        ("PUT", true, None) => "PutObject",
        ("GET", true, None) => "GetObject",
        ("HEAD", true, None) => "HeadObject",
        ("DELETE", true, None) => "DeleteObject",
        ("HEAD", false, None) => "HeadBucket",
        ("PUT", false, None) => "CreateBucket",
        ("DELETE", false, None) => "DeleteBucket",
        ("GET", false, None) if asks("list-type") => "ListObjectsV2",
        ("GET", false, None) if path.is_empty() => "ListBuckets",
        ("GET", false, None) => "ListObjects",
        ("PUT", false, Some("versioning")) => "PutBucketVersioning",
        ("PUT", false, Some("encryption")) => "PutBucketEncryption",
        ("PUT", false, Some("publicAccessBlock")) => "PutPublicAccessBlock",
        ("PUT", false, Some("lifecycle")) => "PutBucketLifecycleConfiguration",
        ("GET", false, Some("location")) => "GetBucketLocation",
        ("POST", false, Some("delete")) => "DeleteObjects",
        (method, _, sub) => return format!("{method} {path}?{}", sub.unwrap_or_default()),
    };
    name.to_owned()
}

//! The query protocol: `GetCallerIdentity` and nothing else.

use axum::body::Body;
use axum::http::{HeaderValue, Response, StatusCode, header};

use crate::sim::sqs::ACCOUNT;

/// Answers a form-encoded call.
pub(super) fn call(form: &[u8], request_id: &str) -> Response<Body> {
    // Action names are plain words, so that nothing needs to be unescaped to find one.
    let form = String::from_utf8_lossy(form);
    let action = form.split('&').find_map(|pair| pair.strip_prefix("Action=")).unwrap_or_default();
    if action == "GetCallerIdentity" {
        return xml(
            StatusCode::OK,
            format!(
                "<GetCallerIdentityResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
                 <GetCallerIdentityResult><Arn>arn:aws:iam::{ACCOUNT}:user/local</Arn>\
                 <UserId>AIDALOCAL</UserId><Account>{ACCOUNT}</Account></GetCallerIdentityResult>\
                 <ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata>\
                 </GetCallerIdentityResponse>"
            ),
        );
    }
    let known: String = action.chars().filter(char::is_ascii_alphanumeric).take(64).collect();
    xml(
        StatusCode::BAD_REQUEST,
        format!(
            "<ErrorResponse><Error><Type>Sender</Type><Code>InvalidAction</Code>\
             <Message>the embedded AWS has SQS, S3, DynamoDB and GetCallerIdentity, no {known}</Message>\
             </Error><RequestId>{request_id}</RequestId></ErrorResponse>"
        ),
    )
}

fn xml(status: StatusCode, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    response
}

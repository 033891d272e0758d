//! The ledger's table: on demand, indexed by state, with TTL on `expires_at` and point-in-time recovery.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType,
    PointInTimeRecoverySpecification, Projection, ProjectionType, ScalarAttributeType,
    TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};

use super::{SetupError, SetupReport, Was};
use crate::aws::client::Aws;
use crate::aws::dynamodb::BY_STATE;
use crate::aws::error::Call;
use crate::aws::item::{EXPIRES_AT, GSI_PK, GSI_SK, PK};
use crate::domain::failure::ErrorClass;
use crate::port::error::{PortError, Target};

/// How often the table is looked at until it is active.
const LOOKS: u32 = 60;
/// The pause between two looks.
const LOOK_PAUSE: Duration = Duration::from_secs(2);

pub(super) async fn ensure(
    aws: &Aws,
    table: &str,
    report: &mut SetupReport,
) -> Result<(), SetupError> {
    let was = match describe(aws, table).await? {
        Some(_) => Was::Existing,
        None => create(aws, table).await?,
    };
    report.add(was, format!("table {table}"));
    let description = wait_until_active(aws, table).await?;
    check(table, &description)?;
    expire(aws, table).await?;
    recover(aws, table, report).await?;
    Ok(())
}

fn call<'a>(operation: &'static str, table: &'a str) -> Call<'a> {
    Call::new(Target::DynamoDb, operation, table)
}

async fn describe(aws: &Aws, table: &str) -> Result<Option<TableDescription>, PortError> {
    match aws.dynamodb.describe_table().table_name(table).send().await {
        Ok(answer) => Ok(answer.table),
        Err(error) => match call("DescribeTable", table).failed(&error) {
            missing if missing.class() == ErrorClass::NotFound => Ok(None),
            failed => Err(failed),
        },
    }
}

fn index() -> Result<GlobalSecondaryIndex, aws_sdk_dynamodb::error::BuildError> {
    GlobalSecondaryIndex::builder()
        .index_name(BY_STATE)
        .key_schema(key(GSI_PK, KeyType::Hash)?)
        .key_schema(key(GSI_SK, KeyType::Range)?)
        .projection(Projection::builder().projection_type(ProjectionType::All).build())
        .build()
}

fn key(name: &str, kind: KeyType) -> Result<KeySchemaElement, aws_sdk_dynamodb::error::BuildError> {
    KeySchemaElement::builder().attribute_name(name).key_type(kind).build()
}

async fn create(aws: &Aws, table: &str) -> Result<Was, PortError> {
    let call = call("CreateTable", table);
    let mut request = aws
        .dynamodb
        .create_table()
        .table_name(table)
        .billing_mode(BillingMode::PayPerRequest)
        .key_schema(key(PK, KeyType::Hash).map_err(|_| call.invalid("incomplete key"))?)
        .global_secondary_indexes(index().map_err(|_| call.invalid("incomplete index"))?);
    for name in [PK, GSI_PK, GSI_SK] {
        let definition = AttributeDefinition::builder()
            .attribute_name(name)
            .attribute_type(ScalarAttributeType::S)
            .build();
        request = request
            .attribute_definitions(definition.map_err(|_| call.invalid("incomplete attribute"))?);
    }
    match request.send().await {
        Ok(_) => Ok(Was::Created),
        Err(error) => match call.failed(&error) {
            made if made.code() == "ResourceInUseException" => Ok(Was::Existing),
            failed => Err(failed),
        },
    }
}

async fn wait_until_active(aws: &Aws, table: &str) -> Result<TableDescription, SetupError> {
    for _ in 0..LOOKS {
        let description = describe(aws, table).await?;
        if let Some(active) = description.filter(|d| d.table_status() == Some(&TableStatus::Active))
        {
            return Ok(active);
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
    Err(unfit(table, "it does not become active"))
}

fn unfit(table: &str, what: impl Into<String>) -> SetupError {
    SetupError::Table { table: table.to_owned(), what: what.into() }
}

fn check(table: &str, description: &TableDescription) -> Result<(), SetupError> {
    let keys: Vec<_> =
        description.key_schema().iter().map(KeySchemaElement::attribute_name).collect();
    if keys != [PK] {
        return Err(unfit(table, format!("its key must be {PK} alone")));
    }
    let indexes = description.global_secondary_indexes();
    if !indexes.iter().any(|index| index.index_name() == Some(BY_STATE)) {
        return Err(unfit(table, format!("it has no index {BY_STATE}")));
    }
    Ok(())
}

/// Turns TTL on; TTL on another attribute is a mismatch, never taken for ours.
async fn expire(aws: &Aws, table: &str) -> Result<(), SetupError> {
    let described = aws.dynamodb.describe_time_to_live().table_name(table).send().await;
    let described = described.map_err(|e| call("DescribeTimeToLive", table).failed(&e))?;
    if let Some(ttl) = described.time_to_live_description {
        let on = matches!(
            ttl.time_to_live_status,
            Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling)
        );
        match ttl.attribute_name.filter(|_| on) {
            Some(attribute) if attribute == EXPIRES_AT => return Ok(()),
            Some(other) => {
                return Err(unfit(table, format!("its TTL is on {other}, not on {EXPIRES_AT}")));
            }
            None => {}
        }
    }
    let call = call("UpdateTimeToLive", table);
    let on = TimeToLiveSpecification::builder().enabled(true).attribute_name(EXPIRES_AT).build();
    let on = on.map_err(|_| call.invalid("incomplete specification"))?;
    let request = aws.dynamodb.update_time_to_live().table_name(table);
    let answer = request.time_to_live_specification(on).send().await;
    answer.map(|_| ()).map_err(|e| call.failed(&e).into())
}

/// Turns point-in-time recovery on. Only AWS has it for certain: a server without it is noted.
async fn recover(aws: &Aws, table: &str, report: &mut SetupReport) -> Result<(), PortError> {
    let call = call("UpdateContinuousBackups", table);
    let on = PointInTimeRecoverySpecification::builder()
        .point_in_time_recovery_enabled(true)
        .build()
        .map_err(|_| call.invalid("incomplete specification"))?;
    let request = aws.dynamodb.update_continuous_backups().table_name(table);
    match request.point_in_time_recovery_specification(on).send().await {
        Ok(_) => Ok(()),
        Err(error) => match call.failed(&error) {
            unknown if unknown.code().starts_with("UnknownOperation") => {
                report.notes.push(format!("table {table}: no point-in-time recovery here"));
                Ok(())
            }
            failed => Err(failed),
        },
    }
}

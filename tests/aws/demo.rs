//! The demo, as a newcomer runs it.

use serde_json::Value;

use crate::harness::output;

/// Runs the demo where the environment's AWS and configuration are traps: neither may be looked at.
fn demo(args: &[&str]) -> (String, String, Option<i32>) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("redrive.toml"), "no configuration").unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_redrive"));
    command.args(args).arg("demo").current_dir(folder.path());
    for (name, value) in [
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_SQS", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:1"),
        ("AWS_PROFILE", "no-such-profile"),
        ("AWS_REGION", "no-such-region"),
        ("AWS_USE_FIPS_ENDPOINT", "true"),
        ("AWS_USE_DUALSTACK_ENDPOINT", "true"),
        ("HTTP_PROXY", "http://127.0.0.1:1"),
        ("http_proxy", "http://127.0.0.1:1"),
        ("REDRIVE_SOURCE_QUEUE", "no queue"),
    ] {
        command.env(name, value);
    }
    command.env_remove("REDRIVE_LOG");
    let output = output(command);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr), output.status.code())
}

#[test]
fn the_demo_adds_up() {
    let (stdout, stderr, code) = demo(&["--json"]);
    assert_eq!(code, Some(0), "{stderr}{stdout}");
    assert_eq!(stderr, "", "nothing to warn of");
    let told: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(told["ok"], true, "{told}");
    let steps = told["steps"].as_array().unwrap();
    let names: Vec<&str> = steps.iter().map(|step| step["name"].as_str().unwrap()).collect();
    for name in ["produce", "work", "triage", "redrive_too_soon", "fix", "redrive", "totals"] {
        assert!(names.contains(&name), "{name}: {names:?}");
    }
    assert!(steps.iter().all(|step| step["ok"] == true), "{told}");

    let step = |name| steps.iter().find(|step| step["name"] == name).unwrap();
    assert_eq!(step("redrive_too_soon")["counts"]["sent"], 5, "the canary alone");
    assert_eq!(step("redrive_again")["counts"]["sent"], 0);
    let totals = &told["totals"];
    let number = |name: &str| totals[name].as_u64().unwrap();
    let codes = totals["resolved_by_code"].as_object().unwrap().values();
    assert_eq!(codes.map(|count| count.as_u64().unwrap()).sum::<u64>(), number("resolved"));
    assert_eq!(number("sent"), number("committed") + number("repeats") + number("resolved"));
    assert_eq!(number("bookings"), number("committed") + number("resolved"));
    for nothing in ["parked", "unsettled", "booked_twice", "source_depth", "dlq_depth"] {
        assert_eq!(number(nothing), 0, "{nothing}");
    }
    assert!(number("resolved") > 0 && number("repeats") > 0 && number("envelopes") > 0);
}

#[test]
fn the_demo_names_every_code() {
    let (stdout, stderr, code) = demo(&[]);
    assert_eq!(code, Some(0), "{stderr}{stdout}");
    assert_eq!(stderr, "", "nothing to warn of");
    for code in ["ISRC_MALFORMED", "SPLIT_SUM_INVALID", "TERRITORY_UNKNOWN", "AMOUNT_FORMAT"] {
        assert!(stdout.contains(code), "{code}: {stdout}");
    }
    for word in ["canary", "tripped", "completed", "DLQ depth: 0", "Everything adds up"] {
        assert!(stdout.contains(word), "{word}: {stdout}");
    }
}

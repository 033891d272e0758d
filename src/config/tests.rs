//! What the configuration promises as a whole.

use super::*;
use crate::domain::selector::Selector;

const REQUIRED: &str = "[source]\nqueue = \"orders\"\n[vault]\nbucket = \"my-vault\"\n";

fn read(text: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    let table = parse(text)?;
    let given = Given {
        environment: environment.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect(),
        file: Some(("redrive.toml".into(), table)),
        fallback: Table::new(),
    };
    Config::read(&given).map_err(|e| e.to_string())
}

/// The required keys with `lines` in section `name`.
fn with(name: &str, lines: &str) -> String {
    match name {
        "source" => REQUIRED.replace("[vault]", &format!("{lines}\n[vault]")),
        "vault" => format!("{REQUIRED}{lines}\n"),
        _ => format!("{REQUIRED}[{name}]\n{lines}\n"),
    }
}

#[test]
fn the_sample_is_the_defaults() {
    let sample = read(SAMPLE, &[]).unwrap();
    let mut defaults = read(REQUIRED, &[]).unwrap();
    defaults.handler =
        read(&with("handler", r#"command = ["python3", "handler.py"]"#), &[]).unwrap().handler;
    assert_eq!(format!("{sample:#?}"), format!("{defaults:#?}"));
}

#[test]
fn what_the_sample_comments_out_is_valid_too() {
    let text: String = SAMPLE
        .lines()
        .filter(|line| {
            !["kind = \"http\"", "kind = \"lambda\"", "url =", "headers =", "function ="]
                .iter()
                .any(|key| line.starts_with(&format!("# {key}")))
        })
        .map(|line| match line.strip_prefix("# ") {
            Some(key) if key.contains(" = ") || key.starts_with("[[") => format!("{key}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let config = read(&text, &[]).unwrap();
    assert_eq!(config.labels.len(), 1);
    assert_eq!(config.classify.len(), 1);
    assert_eq!(config.limits.max_attempts, Some(5));
    assert_eq!(config.source.dlq.unwrap().as_str(), "orders-dlq");
}

#[test]
fn every_key_of_the_sample_can_be_unknown_by_a_typing_mistake() {
    for line in SAMPLE.lines().filter(|line| line.contains(" = ") && !line.starts_with('#')) {
        let key = line.split(" = ").next().unwrap();
        let text = SAMPLE.replacen(&format!("\n{key} = "), &format!("\n{key}x = "), 1);
        let error = read(&text, &[]).unwrap_err();
        let expected = format!("unknown key; did you mean {key:?}?");
        assert!(error.contains(&expected), "{key}: {error}");
    }
}

#[test]
fn problems_name_place_key_and_range() {
    for (section, lines, expected) in [
        ("source", "wait = \"40s\"", "redrive.toml: source.wait: 40s is outside 1s..20s"),
        ("source", "wait = \"0s\"", "redrive.toml: source.wait: 0s is outside 1s..20s"),
        ("source", "concurrency = 0", "redrive.toml: source.concurrency: 0 is outside 1..1000"),
        ("source", "concurrency = -1", "redrive.toml: source.concurrency: -1 is outside 1..1000"),
        (
            "source",
            "wiat = \"20s\"",
            "redrive.toml: source.wiat: unknown key; did you mean \"wait\"?",
        ),
        ("sorce", "", "redrive.toml: sorce: unknown section; did you mean \"source\"?"),
        ("limits", "confidence_floor = nan", "confidence_floor: NaN is outside 0..1"),
        ("identity", "remember = \"1h\"", "identity.remember: 1h is outside 26h..3650d"),
        (
            "retry",
            "base = 5",
            "retry.base: must be a duration in quotes, like \"20s\", not integer",
        ),
        ("vault", "prefix = \"/a\"", "\"/a\" is no prefix"),
        ("labels", "a = \"b\"", "labels: a: \"b\" is neither a JSON pointer"),
        ("schema", "supported = [\"1\"]", "schema.version: required with schema.supported"),
        ("handler", "kind = \"exe\"", "\"exe\" must be one of exec, http, lambda"),
        ("handler", "kind = \"http\"\nurl = \"http://u:p@host/\"", "must not hold credentials"),
        ("handler", "kind = \"http\"\ncommand = [\"a\"]", "handler.command: belongs to another"),
    ] {
        let error = read(&with(section, lines), &[]).unwrap_err();
        assert!(error.contains(expected), "{section} {lines:?}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let error = read("[[classify]]\nmatch = { message = \"(\" }\nas = \"permanent\"", &[]);
    assert!(error.is_err_and(|e| e.contains("source.queue: required")));
    let text = format!("{REQUIRED}[[classify]]\nmatch = {{ message = \"(\" }}\nas = \"permanent\"");
    assert!(read(&text, &[]).is_err_and(|e| e.contains("classify[0].match.message: regex")));
    assert!(read("a = \n", &[]).is_err_and(|e| e.starts_with("line 1: ")));
}

#[test]
fn case_b6_a_wait_that_sqs_refuses_is_refused_at_start_with_its_range() {
    for wait in ["40s", "21s", "0s"] {
        let error = read(&with("source", &format!("wait = \"{wait}\"")), &[]).unwrap_err();
        assert!(error.contains(&format!("{wait} is outside 1s..20s")), "{error}");
    }
    assert!(read(&with("source", "wait = \"-1s\""), &[]).is_err_and(|e| e.contains("source.wait")));
    let longest = read(&with("source", "wait = \"20s\""), &[]).unwrap();
    assert_eq!(longest.source.wait, std::time::Duration::from_secs(20));
}

#[test]
fn the_environment_goes_before_the_file() {
    let environment = [
        ("REDRIVE_SOURCE_QUEUE", "from-env"),
        ("REDRIVE_SOURCE_CONCURRENCY", "3"),
        ("REDRIVE_LEDGER_BATCH", "true"),
        ("REDRIVE_RETRY_CAP", "30m"),
        ("REDRIVE_PAYLOAD_BUCKETS", r#"["one", "two"]"#),
        ("REDRIVE_LABELS", r#"{"region": "attribute:region"}"#),
        ("REDRIVE_NOBODY_KNOWS", "x"),
        ("REDRIVE_QUEUE", "orders"),
    ];
    let config = read(&with("labels", "other = \"/other\""), &environment).unwrap();
    assert_eq!(config.source.queue.as_str(), "from-env");
    assert_eq!(config.source.concurrency, 3);
    assert!(config.ledger.batch);
    assert_eq!(config.retry.cap, std::time::Duration::from_secs(1_800));
    assert_eq!(config.payload.buckets.len(), 2);
    assert_eq!(config.labels["region"], Selector::Attribute("region".into()));
    assert_eq!(config.labels.len(), 1);
    assert_eq!(config.handler, None);
    let error = read(REQUIRED, &[("REDRIVE_SOURCE_WAIT", "40s")]).unwrap_err();
    assert_eq!(error, "REDRIVE_SOURCE_WAIT: source.wait: 40s is outside 1s..20s");
}

#[test]
fn the_environment_alone_is_enough() {
    let environment = [
        ("REDRIVE_SOURCE_QUEUE", "from-env"),
        ("REDRIVE_VAULT_BUCKET", "env-vault"),
        ("REDRIVE_HANDLER_COMMAND", r#"["cat"]"#),
    ];
    let environment = environment.map(|(k, v)| (k.to_owned(), v.to_owned()));
    let none = std::env::temp_dir().join("redrive-no-such-file.toml");
    assert!(Config::load(environment.clone(), Some(&none)).is_err_and(|e| {
        let text = e.to_string();
        text.contains("redrive-no-such-file.toml: cannot be read") && !text.contains('\n')
    }));
    let given = Given {
        environment: environment.into_iter().collect(),
        file: None,
        fallback: Table::new(),
    };
    let config = Config::read(&given).unwrap();
    assert_eq!(config.source.queue.as_str(), "from-env");
    assert!(
        matches!(config.handler.unwrap().kind, HandlerKind::Exec { command, .. } if command == ["cat"])
    );
}

#[test]
fn secrets_do_not_show_themselves() {
    let text = with(
        "handler",
        "kind = \"http\"\nurl = \"http://localhost/\"\nheaders = { A = \"SECRET-XYZ\", B = \"env:TOKEN\", C = \"env:NONE\" }",
    );
    let config = read(&text, &[("TOKEN", "AKSECRETTEST")]).unwrap();
    let debug = format!("{config:?}");
    assert!(!debug.contains("SECRET"), "{debug}");
    let Some(Handler { kind: HandlerKind::Http { headers, .. }, .. }) = config.handler else {
        panic!("no http handler")
    };
    assert_eq!(headers["A"].expose(), Ok("SECRET-XYZ"));
    assert_eq!(headers["B"].expose(), Ok("AKSECRETTEST"));
    assert!(headers["C"].expose().is_err_and(|e| e.to_string().contains("NONE is not set")));
}

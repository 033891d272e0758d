//! The README lists every metric as the code has it.

use redrive::telemetry::metric;

/// The cells of the README's table of metrics, without its head.
fn documented() -> Vec<Vec<String>> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md");
    let readme = std::fs::read_to_string(path).unwrap();
    let (_, table) = readme.split_once("| metric | unit | meaning | by |\n").unwrap();
    let rows = table.lines().skip(1).take_while(|line| line.starts_with('|'));
    let cells =
        |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

#[test]
fn the_readme_has_every_metric_and_no_other() {
    let built: Vec<Vec<String>> = metric::all()
        .map(|metric| {
            let by = if metric.name == "Parked" { "Queue; Queue and ErrorCode" } else { "Queue" };
            let name = format!("`{}`", metric.name);
            [&name, metric.unit.as_str(), metric.meaning, by].map(str::to_owned).to_vec()
        })
        .collect();
    assert_eq!(documented(), built);
}

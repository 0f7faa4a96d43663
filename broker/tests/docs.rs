//! The page about the broker says what the code does.

const PAGE: &str = include_str!("../../docs/broker.md");

#[test]
fn the_page_has_the_table_of_apis_that_the_code_has() {
    let (head, rest) = PAGE.split_once("<!-- apis -->\n").expect("the page has a place for the table");
    let (table, tail) = rest.split_once("<!-- /apis -->").expect("the place ends");
    let expected = cutwater_broker::api_table();
    if std::env::var_os("CUTWATER_WRITE_DOCS").is_some() {
        write(&format!("{head}<!-- apis -->\n{expected}<!-- /apis -->{tail}"));
    }
    assert_eq!(table, expected, "run this test with CUTWATER_WRITE_DOCS=1");
}

/// What the list of others' bugs must have something to say about, by tracker; a number stands for an issue there.
#[rustfmt::skip]
const BUGS: &[(&str, &[&str])] = &[
    ("KAFKA-", &["17754", "9144", "9666", "6119", "19367", "18660", "19999", "8351", "13727", "8522", "5376", "17507", "19163", "13636", "15653",
        "8500", "10284", "20985", "3968", "12520", "5829", "18659", "14034", "17801"]),
    ("Redpanda #", &["3039", "3003", "3036", "10671", "15672", "5163", "13364", "3826", "29001"]),
    ("#", &["3038", "3077", "6018", "6019", "7544", "7458", "24637", "31483", "6630", "5355", "29609"]),
    ("AutoMQ #", &["754"]),
    ("nisshi #", &["668", "62", "713"]),
    ("iggy #", &["3946", "4063"]),
    ("fluss #", &["2942"]),
    ("ydb #", &["51053"]),
    ("crabka #", &["528"]),
    ("librdkafka #", &["3575", "3928", "3400", "4956"]),
    ("#", &["3971", "2539", "3917", "4128", "3009", "3546"]),
    ("sarama #", &["2859", "3354", "3491"]),
    ("#", &["2915", "2619", "2803", "2860", "158", "156"]),
    ("FLINK-", &["31363", "40626", "40689", "23854", "28250", "35749"]),
    ("RocketMQ #", &["544"]),
    ("Pulsar #", &["15530"]),
    ("#", &["1517", "8311", "9500", "2694", "22610", "23550", "26368", "26489"]),
    ("", &["NATS 2.12.1", "Bufstream 0.1.0", "Redpanda 21.10.1"]),
];

#[test]
fn no_bug_of_others_that_concerns_what_is_here_is_left_out() {
    let page = include_str!("../../docs/known-bugs.md");
    let incidents: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next()).collect();
    let names = |name: &str| {
        let ends = |rest: &str| !rest.starts_with(|c: char| c.is_ascii_digit());
        incidents.iter().any(|row| row.match_indices(name).any(|(at, _)| ends(&row[at + name.len()..])))
    };
    let missing = BUGS.iter().flat_map(|(tracker, all)| all.iter().map(move |number| format!("{tracker}{number}")));
    let missing: Vec<String> = missing.filter(|name| !names(name)).collect();
    assert!(missing.is_empty(), "docs/known-bugs.md has no row for {missing:?}");
    assert!(!names("KAFKA-1775") && !names("FLINK-1"), "the search tells a number from its beginning");
}

/// Every row of the list of others' bugs names a test that is there, or says why there is none.
#[test]
fn every_bug_of_others_has_a_test_that_is_there() {
    let (mut rows, mut named) = (0, 0);
    for line in include_str!("../../docs/known-bugs.md").lines().filter(|line| line.starts_with("| ")).skip(1) {
        rows += 1;
        let here = line.trim_end_matches('|').rsplit('|').next().expect("a last column").trim();
        let quoted: Vec<&str> = here.split('`').skip(1).step_by(2).collect();
        assert!(quoted.len().is_multiple_of(2), "a file and a name: {line}");
        assert!(!quoted.is_empty() || here.len() > 20, "neither a test nor a reason: {line}");
        for pair in quoted.chunks(2) {
            let text = text_of(pair[0]);
            let name = if pair[0].ends_with(".rs") { format!("fn {}(", pair[1]) } else { pair[1].to_string() };
            assert!(text.contains(&name), "{} has no {name}: {line}", pair[0]);
            named += 1;
        }
    }
    assert!(rows > 35 && named > 30, "{rows} rows, {named} tests: the list is read");
}

fn text_of(file: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Writes the page anew when asked to.
#[expect(clippy::disallowed_methods, reason = "the page is written on demand only")]
fn write(page: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker.md");
    std::fs::write(path, page).expect("the page can be written");
}

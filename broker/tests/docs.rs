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

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

/// Writes the page anew when asked to.
#[expect(clippy::disallowed_methods, reason = "the page is written on demand only")]
fn write(page: &str) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/broker.md");
    std::fs::write(path, page).expect("the page can be written");
}

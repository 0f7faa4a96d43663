//! Six mistakes that people make, and what the compiler tells them.
//!
//! The expected messages stand beside the programs. After a change of the compiler or of a bound they are written anew with
//! `TRYBUILD=overwrite`; read them then as somebody would who has made the mistake.

#[test]
fn six_named_mistakes_do_not_compile_and_the_compiler_says_what_is_missing() {
    trybuild::TestCases::new().compile_fail("tests/mistakes/*.rs");
}

//! Regular expressions that clients have this server evaluate: over names of topics (KIP-848) and transactional ids (KIP-1152).
//!
//! Kafka reads them by RE2/J; the crate `regex` has the same syntax and the same promise: time linear in the text, whatever the
//! expression (I-9). What is beside it is bounded as well: the expression's length, the program that it becomes, and how deep it nests.
//! A name matches as a whole, as in Kafka.
//!
//! Where the two differ: quotations (`\Q...\E`), which Java's `Pattern.quote` makes, are turned into what `regex` knows; `\C` isn't there; `&&`,
//! `--` and `~~` in a class are operators here and characters there; and `\d`, `\w`, `\s` know letters and digits of all alphabets, which names of
//! topics don't have.

use std::borrow::Cow;

use regex::{Regex, RegexBuilder};

/// The longest expression.
pub(crate) const EXPRESSION_BYTES_MAX: usize = 4 << 10;
/// The largest program that one may become, and the most memory that it takes to run beside.
const PROGRAM_BYTES_MAX: usize = 1 << 20;
const NEST_MAX: u32 = 100;

/// An expression, ready to be asked.
#[derive(Debug)]
pub(crate) struct Pattern(Regex);

impl Pattern {
    /// # Errors
    /// It is none, or too large: why.
    pub(crate) fn new(expression: &str) -> Result<Pattern, String> {
        if expression.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("the expression has more than {EXPRESSION_BYTES_MAX} bytes"));
        }
        let expression = without_quotations(expression);
        let build = |expression: &str| {
            let mut builder = RegexBuilder::new(expression);
            builder.size_limit(PROGRAM_BYTES_MAX).dfa_size_limit(PROGRAM_BYTES_MAX).nest_limit(NEST_MAX).build()
        };
        // By itself first: "a)|(b" is none, and would be one between parentheses.
        build(&expression).map_err(|error| error.to_string())?;
        Ok(Pattern(build(&format!(r"\A(?:{expression})\z")).map_err(|error| error.to_string())?))
    }

    /// Whether the whole name is such.
    pub(crate) fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

/// `\Q...\E` as the characters between them, each for itself; without the `\E` up to the end.
fn without_quotations(expression: &str) -> Cow<'_, str> {
    let Some((mut before, mut rest)) = split_at_quotation(expression) else { return expression.into() };
    let mut plain = String::with_capacity(expression.len());
    loop {
        plain.push_str(before);
        let (quoted, behind) = rest.split_once(r"\E").unwrap_or((rest, ""));
        plain.push_str(&regex::escape(quoted));
        match split_at_quotation(behind) {
            Some(next) => (before, rest) = next,
            None => {
                plain.push_str(behind);
                return plain.into();
            }
        }
    }
}

/// What stands before the first `\Q` and what behind it. A backslash takes the next character with it.
fn split_at_quotation(expression: &str) -> Option<(&str, &str)> {
    let mut characters = expression.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' && characters.next()?.1 == 'Q' {
            return Some((&expression[..at], &expression[at + 2..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(expression: &str, name: &str) -> bool {
        Pattern::new(expression).unwrap_or_else(|e| panic!("{expression}: {e}")).matches(name)
    }

    #[test]
    fn a_name_matches_as_a_whole_or_not_at_all() {
        for (expression, yes, no) in [
            ("orders", "orders", "orders-2"),
            ("orders.*", "orders-2", "my-orders"),
            (".*", "", "a\nb"),
            ("a|ab", "ab", "abc"),
            ("^a$", "a", "aa"),
            ("(?i)Orders", "oRDERS", "order"),
            (r"[a-c]{2}\.\d+", "ab.12", "abx12"),
            (r"\Qa.b\E.c", "a.bxc", "axbxc"),
            (r"x\Q.*", "x.*", "xyz"),
            (r"\Qa\E|\Q(b\E", "(b", "b"),
            (r"\\Qa", r"\Qa", "a"),
        ] {
            assert!(matches(expression, yes), "{expression} is {yes:?}");
            assert!(!matches(expression, no), "{expression} isn't {no:?}");
        }
    }

    #[test]
    fn what_is_no_expression_or_would_take_too_much_is_refused_with_a_reason() {
        let deep = format!("{}a{}", "(".repeat(200), ")".repeat(200));
        let long = "a".repeat(EXPRESSION_BYTES_MAX + 1);
        for expression in
            ["(", "a)|(b", "*", "[a", "a{2,1}", r"\", r"(?=a)", r"(a)\1", r"((\w{200}){200}){200}", &deep, &long]
        {
            assert!(!Pattern::new(expression).expect_err(expression).is_empty());
        }
    }

    #[test]
    fn an_expression_that_ruins_backtracking_engines_is_answered_at_once() {
        // Exponential for those: two to the power of thirty thousand ways.
        assert!(!matches(r"(a|a|aa)*b", &"a".repeat(30_000)));
    }
}

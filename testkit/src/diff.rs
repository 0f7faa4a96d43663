//! Two sequences compared, with the difference told as a short story.
//!
//! Pipeline tests compare whole sequences: a map from key to last value hides duplicates, losses and reorderings. Where
//! the order is free (many workers), [`multiset_diff`] compares how often each element is there.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};

/// How many elements a story names of each sort.
const NAMED: usize = 5;

/// `None` when the sequences are the same; else where they part, and what was lost, duplicated, added or moved.
///
/// ```
/// use cutwater_testkit::sequence_diff;
/// assert_eq!(sequence_diff(&[1, 2, 3], &[1, 2, 3]), None);
/// let story = sequence_diff(&[1, 2, 3, 4], &[1, 3, 3, 4]).expect("they differ");
/// assert!(story.contains("at index 1: expected 2, found 3"), "{story}");
/// assert!(story.contains("lost (1): 2") && story.contains("too often (1): 3 (2 times instead of 1)"), "{story}");
/// ```
pub fn sequence_diff<T: Ord + Debug>(expected: &[T], actual: &[T]) -> Option<String> {
    let same = expected.iter().zip(actual).take_while(|(e, a)| e == a).count();
    if same == expected.len() && same == actual.len() {
        return None;
    }
    let mut story = format!("{} elements expected, {} found; first difference ", expected.len(), actual.len());
    let shown = |side: &[T]| side.get(same).map_or("the end".to_string(), |e| format!("{e:?}"));
    // Writing to a String can't fail.
    let _ = write!(story, "at index {same}: expected {}, found {}", shown(expected), shown(actual));
    if same > 0 {
        let _ = write!(story, " (after {:?})", actual[same - 1]);
    }
    match multiset_diff(expected, actual) {
        Some(counts) => story.push_str(&format!("\n{counts}")),
        None => story.push_str("\nthe elements are the same, their order isn't"),
    }
    Some(story)
}

/// `None` when each element is there equally often on both sides; else what was lost, duplicated or added.
///
/// ```
/// use cutwater_testkit::multiset_diff;
/// assert_eq!(multiset_diff(&[1, 2, 2], &[2, 1, 2]), None);
/// assert_eq!(multiset_diff(&[1], &[9]).expect("they differ"), "lost (1): 1\nnever expected (1): 9");
/// ```
pub fn multiset_diff<T: Ord + Debug>(expected: &[T], actual: &[T]) -> Option<String> {
    let mut counts: BTreeMap<&T, (usize, usize)> = BTreeMap::new();
    for element in expected {
        counts.entry(element).or_default().0 += 1;
    }
    for element in actual {
        counts.entry(element).or_default().1 += 1;
    }
    let mut lines = Vec::new();
    let mut tell = |title: &str, belongs: fn(usize, usize) -> bool, with_counts: bool| {
        let named: Vec<_> = counts.iter().filter(|(_, (e, a))| belongs(*e, *a)).collect();
        if named.is_empty() {
            return;
        }
        let one = |(element, (e, a)): &(&&T, &(usize, usize))| match with_counts {
            true => format!("{element:?} ({a} times instead of {e})"),
            false => format!("{element:?}"),
        };
        let more = if named.len() > NAMED { ", ..." } else { "" };
        let some: Vec<String> = named.iter().take(NAMED).map(one).collect();
        lines.push(format!("{title} ({}): {}{more}", named.len(), some.join(", ")));
    };
    tell("lost", |e, a| a == 0 && e > 0, false);
    tell("too seldom", |e, a| a > 0 && a < e, true);
    tell("too often", |e, a| e > 0 && a > e, true);
    tell("never expected", |e, a| e == 0 && a > 0, false);
    if lines.is_empty() { None } else { Some(lines.join("\n")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swap_is_called_a_matter_of_order() {
        let story = sequence_diff(&["a", "b", "c"], &["a", "c", "b"]).expect("they differ");
        assert!(story.contains("at index 1: expected \"b\", found \"c\" (after \"a\")"), "{story}");
        assert!(story.ends_with("the elements are the same, their order isn't"), "{story}");
    }

    #[test]
    fn a_missing_tail_and_a_surplus_tail_name_the_end() {
        let story = sequence_diff(&[1, 2], &[1]).expect("they differ");
        assert!(story.contains("at index 1: expected 2, found the end"), "{story}");
        let story = sequence_diff(&[1], &[1, 2]).expect("they differ");
        assert!(story.contains("expected the end, found 2") && story.contains("never expected (1): 2"), "{story}");
    }

    #[test]
    fn long_lists_are_cut_but_counted_and_seldom_is_told_from_lost() {
        let expected: Vec<u32> = (0..100).flat_map(|n| [n, n]).collect();
        let actual: Vec<u32> = (10..100).collect();
        let story = multiset_diff(&expected, &actual).expect("they differ");
        assert_eq!(
            story,
            "lost (10): 0, 1, 2, 3, 4, ...\ntoo seldom (90): 10 (1 times instead of 2), 11 (1 times instead of 2), \
             12 (1 times instead of 2), 13 (1 times instead of 2), 14 (1 times instead of 2), ..."
        );
    }
}

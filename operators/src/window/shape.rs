//! The numbers that say which windows there are, saved beside them: open windows are known by a time alone, and under other
//! numbers it would mean another window.

use cutwater_engine::error::OperatorError;
use cutwater_engine::operator::Saved;

/// The name under which the numbers are saved, eight bytes each, least significant first.
const SHAPE: &str = "shape";

/// What is to be saved.
pub(super) fn save(shape: &[i64]) -> (String, Vec<u8>) {
    (SHAPE.to_string(), shape.iter().flat_map(|number| number.to_le_bytes()).collect())
}

/// Refuses windows that were saved with other numbers. `words` says numbers, as many as `shape` has, as people would.
pub(super) fn check<const N: usize>(
    saved: &Saved,
    shape: &[i64; N],
    words: impl Fn(&[i64; N]) -> String,
) -> Result<(), OperatorError> {
    let now = save(shape).1;
    let Some((_, found)) = saved.named(SHAPE).find(|(_, found)| *found != now) else { return Ok(()) };
    let (numbers, rest) = found.as_chunks::<8>();
    let numbers: Vec<i64> = numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    let then = <[i64; N]>::try_from(numbers).ok().filter(|_| rest.is_empty());
    Err(OperatorError::Failed(format!(
        "the open windows were saved as {} and are now {}; restore with the old windows, or give the operator another name",
        then.map_or("of an unknown shape".to_string(), |then| words(&then)),
        words(shape),
    )))
}

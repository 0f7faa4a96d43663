//! Viewed states and comparisons, for people.

use std::fmt;

use super::view::{Comparison, Difference, StateComparison, ViewedEntries, ViewedState};

/// Key groups that are told one by one; the rest is summed up.
const GROUPS_TOLD: usize = 3;

impl fmt::Display for ViewedState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ViewedState { operator, state, files, file_bytes, entries } = self;
        write!(f, "{operator}/{state}: {files} files, {file_bytes} bytes")?;
        let Some(entries) = entries else {
            return f.write_str("; this program doesn't know its types, so its entries can't be told apart");
        };
        let ViewedEntries { keys, key_bytes, value_bytes, groups, shown, found } = entries;
        write!(f, "\n  {keys} keys, {key_bytes} bytes of keys and {value_bytes} of values encoded")?;
        let mut by_bytes: Vec<_> = groups.iter().collect();
        by_bytes.sort_by_key(|(group, (_, bytes))| (std::cmp::Reverse(*bytes), **group));
        for (group, (entries, bytes)) in by_bytes.iter().take(GROUPS_TOLD) {
            write!(f, "\n  key group {group}: {entries} keys, {bytes} bytes")?;
        }
        if by_bytes.len() > GROUPS_TOLD {
            write!(f, "\n  and {} more key groups, none of them larger", by_bytes.len() - GROUPS_TOLD)?;
        }
        for (key, value) in shown {
            write!(f, "\n  {key}: {value}")?;
        }
        let shown = shown.len() as u64;
        match *found {
            0 if *keys > 0 => f.write_str("\n  no such key"),
            found if found > shown && shown > 0 => write!(f, "\n  and {} more", found - shown),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "from checkpoint {} to {}:", self.from, self.to)?;
        for state in &self.states {
            write!(f, "\n{state}")?;
        }
        if self.states.is_empty() {
            f.write_str(" neither has keyed state")?;
        }
        Ok(())
    }
}

impl fmt::Display for StateComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StateComparison { operator, state, added, removed, changed, unchanged, .. } = self;
        write!(f, "  {operator}/{state}: ")?;
        if self.same_files {
            return f.write_str("nothing has changed");
        }
        if !self.known {
            return f.write_str("its files differ, and this program doesn't know its types");
        }
        write!(f, "{added} added, {removed} removed, {changed} changed, {unchanged} compared and the same")?;
        for Difference { key, before, after } in &self.first {
            match (before, after) {
                (None, Some(after)) => write!(f, "\n    + {key}: {after}")?,
                (Some(before), None) => write!(f, "\n    - {key}: {before}")?,
                (Some(before), Some(after)) => write!(f, "\n    ~ {key}: {before} -> {after}")?,
                (None, None) => {}
            }
        }
        let (told, all) = (self.first.len() as u64, added + removed + changed);
        if all > told && told > 0 {
            write!(f, "\n    and {} more", all - told)?;
        }
        Ok(())
    }
}

//! The sums of a campaign, and their form in the progress file.
//!
//! The file is text, one fact a line, and is replaced whole: written beside, synced, renamed. Seeds below `next` are done.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use cutwater_platform::{Files, IoContext, IoError, Open};

use super::One;
use crate::case::Case;

/// The first line: what the file is, and its version.
const HEAD: &str = "cutwater-simulate progress 1";
/// Stories of failures are cut to so many characters; the case replays them whole.
const STORY_MAX: usize = 2_000;
/// The largest progress file that is read.
const FILE_MAX: u64 = 64 << 20;

/// What a campaign came to so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// The first seed.
    pub from: u64,
    /// The first seed that isn't done.
    pub next: u64,
    /// Cases that showed readers what they must see.
    pub good: u64,
    /// Lives in them.
    pub lives: u64,
    /// Turns of workers and steps of tasks in them.
    pub turns: u64,
    /// Checkpoints that were declined in them.
    pub declined: u64,
    /// Lives in them that were overtaken and told so.
    pub fenced: u64,
    /// How often a job waited for room on its disk in them.
    pub pauses: u64,
    /// Seconds of work, all sittings together.
    pub seconds: u64,
    /// How often each point was reached.
    pub reached: BTreeMap<String, u64>,
    /// How often a life ended at each point.
    pub struck: BTreeMap<String, u64>,
    /// Cases that failed, and their stories.
    pub failed: BTreeMap<String, String>,
}

/// A progress file that can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgressError {
    /// It is something else, or damaged.
    #[error("{} is no progress file of this version: line {line}: {found:?}; move it away or give another name", path.display())]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What stands there.
        found: String,
    },
    /// The disk said no.
    #[error(transparent)]
    Io(#[from] IoError),
}

impl Sums {
    /// Adds a case that went well.
    pub fn add(&mut self, one: &One) {
        self.good += 1;
        self.lives += one.lives;
        self.turns += one.turns;
        self.declined += one.declined;
        self.fenced += one.fenced;
        self.pauses += one.pauses;
        for (point, count) in &one.reached {
            *self.reached.entry((*point).to_string()).or_default() += count;
        }
        for point in &one.struck {
            *self.struck.entry(point.clone()).or_default() += 1;
        }
    }

    /// Adds a case that failed.
    pub fn fail(&mut self, case: &Case, story: &str) {
        self.failed.insert(case.to_string(), story.chars().take(STORY_MAX).collect());
    }

    /// Adds the sums of other seeds.
    pub fn merge(&mut self, other: Sums) {
        self.next = self.next.max(other.next);
        self.good += other.good;
        self.lives += other.lives;
        self.turns += other.turns;
        self.declined += other.declined;
        self.fenced += other.fenced;
        self.pauses += other.pauses;
        self.seconds += other.seconds;
        for (point, count) in other.reached {
            *self.reached.entry(point).or_default() += count;
        }
        for (point, count) in other.struck {
            *self.struck.entry(point).or_default() += count;
        }
        self.failed.extend(other.failed);
    }

    /// Cases in all.
    pub fn cases(&self) -> u64 {
        self.good + self.failed.len() as u64
    }

    /// As text.
    pub fn to_text(&self) -> String {
        let mut text = format!("{HEAD}\n");
        let facts = [
            ("from", self.from),
            ("next", self.next),
            ("good", self.good),
            ("lives", self.lives),
            ("turns", self.turns),
            ("declined", self.declined),
            ("fenced", self.fenced),
            ("pauses", self.pauses),
            ("seconds", self.seconds),
        ];
        facts.iter().for_each(|(name, value)| text.push_str(&format!("{name} {value}\n")));
        self.reached.iter().for_each(|(point, count)| text.push_str(&format!("reached {point} {count}\n")));
        self.struck.iter().for_each(|(point, count)| text.push_str(&format!("struck {point} {count}\n")));
        self.failed
            .iter()
            .for_each(|(case, story)| text.push_str(&format!("failed {case} {}\n", story.escape_debug())));
        text
    }

    /// From text; an error is the number and text of the line that can't be understood.
    pub fn from_text(text: &str) -> Result<Sums, (usize, String)> {
        let mut sums = Sums::default();
        for (number, line) in (1..).zip(text.lines()) {
            let understood = match number {
                1 => (line == HEAD).then_some(()),
                _ => sums.take(line),
            };
            understood.ok_or_else(|| (number, line.to_string()))?;
        }
        Ok(sums)
    }

    fn take(&mut self, line: &str) -> Option<()> {
        let (name, rest) = line.split_once(' ')?;
        let slot = match name {
            "from" => &mut self.from,
            "next" => &mut self.next,
            "good" => &mut self.good,
            "lives" => &mut self.lives,
            "turns" => &mut self.turns,
            "declined" => &mut self.declined,
            "fenced" => &mut self.fenced,
            "pauses" => &mut self.pauses,
            "seconds" => &mut self.seconds,
            "reached" | "struck" => {
                let (point, _) = rest.split_once(' ')?;
                let map = if name == "reached" { &mut self.reached } else { &mut self.struck };
                map.entry(point.to_string()).or_default()
            }
            "failed" => {
                let (case, story) = rest.split_once(' ')?;
                self.failed.insert(case.to_string(), story.to_string());
                return Some(());
            }
            _ => return None,
        };
        *slot = rest.rsplit(' ').next()?.parse().ok()?;
        Some(())
    }

    /// Reads a progress file; `None` if there is none.
    ///
    /// # Errors
    /// It is something else, or can't be read.
    pub fn load(files: &dyn Files, path: &Path) -> Result<Option<Sums>, ProgressError> {
        if !files.exists(path).at("look for", path)? {
            return Ok(None);
        }
        let bytes = files.read(path, FILE_MAX).at("read", path)?;
        let text = String::from_utf8_lossy(&bytes);
        let sums = Sums::from_text(&text);
        Ok(Some(sums.map_err(|(line, found)| ProgressError::NotOurs { path: path.to_path_buf(), line, found })?))
    }

    /// Replaces a file by this text, whole or not at all.
    ///
    /// # Errors
    /// The disk said no.
    pub fn replace(files: &dyn Files, path: &Path, text: &str) -> Result<(), IoError> {
        let beside = path.with_extension("tmp");
        if files.exists(&beside).at("look for", &beside)? {
            files.remove_file(&beside).at("remove", &beside)?;
        }
        let file = files.open(&beside, Open::Create).at("create", &beside)?;
        file.write_all_at(text.as_bytes(), 0).at("write", &beside)?;
        file.sync_data().at("sync", &beside)?;
        drop(file);
        files.rename(&beside, path).at("rename to", path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        files.sync_dir(dir).at("sync", dir)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_come_back_from_their_text_and_other_texts_are_refused() {
        let mut sums =
            Sums { from: 5, next: 12, good: 6, lives: 9, turns: 1234, declined: 2, seconds: 3, ..Sums::default() };
        sums.reached.insert("group.committed".to_string(), 7);
        sums.struck.insert("disk".to_string(), 2);
        sums.fail(&Case::of(9).and("disk", 3, crate::End::Kill), "lost: 3");
        assert_eq!(Sums::from_text(&sums.to_text()), Ok(sums.clone()));
        assert_eq!(Sums::from_text("something else\n"), Err((1, "something else".to_string())));
        let cut = sums.to_text().replace("good 6", "good six");
        assert_eq!(Sums::from_text(&cut), Err((4, "good six".to_string())));
    }

    #[test]
    fn a_progress_file_is_replaced_and_read_again() {
        let disk = cutwater_testkit::SimDisk::new();
        let path = Path::new("progress");
        assert_eq!(Sums::load(&disk, path).expect("readable"), None);
        for next in [10, 20] {
            let sums = Sums { next, ..Sums::default() };
            Sums::replace(&disk, path, &sums.to_text()).expect("written");
            let lost = disk.fork().restart(cutwater_testkit::LossPolicy::AllLost, 1);
            assert_eq!(Sums::load(&lost, path).expect("readable"), Some(sums));
        }
    }
}

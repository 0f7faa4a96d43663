//! The data directory: the one that was given, or a temporary one that goes away when all went well.

use std::io;
use std::path::{Path, PathBuf};

use cutwater_engine::config::Options;
use cutwater_engine::error::RunError;
use cutwater_platform::{Files, IoContext, Platform};

use super::console::Console;
use super::exit::Exit;

/// What to do with the directory at the end.
#[derive(Debug)]
pub(super) struct DataDir {
    temporary: Option<PathBuf>,
    platform: Platform,
    /// A job without checkpoints can't go on where it ended.
    resumable: bool,
}

impl DataDir {
    /// Puts the given directory into the options, or makes a temporary one.
    pub(super) fn choose(mut options: Options, given: Option<&Path>) -> Result<(Options, DataDir), RunError> {
        let platform = options.platform.clone();
        let mut temporary = None;
        options.dir = match given {
            Some(dir) => dir.to_path_buf(),
            None => {
                let dir = std::env::temp_dir().join(format!(
                    "cutwater-{}-{:08x}",
                    options.name,
                    platform.random.next_u64() as u32
                ));
                platform.files.create_dir(&dir).at("create the temporary data directory", &dir)?;
                temporary.insert(dir).clone()
            }
        };
        let resumable = options.guarantee.snapshots().is_some();
        Ok((options, DataDir { temporary, platform, resumable }))
    }

    /// Removes a temporary directory if nobody needs it any more, else says where it is.
    pub(super) fn leave(&mut self, exit: Exit, console: &Console) {
        let Some(dir) = self.temporary.take() else { return };
        // After a mistake in the call nothing has begun.
        if matches!(exit, Exit::Done | Exit::Usage) {
            if let Err(error) = remove_all(self.platform.files.as_ref(), &dir) {
                console.complain(&format!("the temporary directory {} stays: {error}", dir.display()));
            }
        } else if self.resumable {
            console.complain(&format!("the data is kept in {}; go on with --dir {0}", dir.display()));
        } else {
            console.complain(&format!(
                "the data is kept in {}; without checkpoints the job can't go on there",
                dir.display()
            ));
        }
    }
}

/// Removes a directory and everything in it.
fn remove_all(files: &dyn Files, dir: &Path) -> io::Result<()> {
    for entry in files.read_dir(dir)? {
        let path = dir.join(&entry.name);
        match entry.is_dir {
            true => remove_all(files, &path)?,
            false => files.remove_file(&path)?,
        }
    }
    files.remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_directory_goes_when_all_went_well_and_stays_otherwise() {
        let console = Console::new(true);
        let files = Platform::real().files;
        for exit in [Exit::Done, Exit::Usage, Exit::Failed, Exit::Interrupted] {
            let (options, mut dir) =
                DataDir::choose(Options::new("test", ""), None).expect("temporary directories work");
            files.create_dir_all(&options.dir.join("log/more")).expect("it is ours");
            files.publish_bytes(&options.dir.join("log/file"), b"x").expect("it is ours");
            dir.leave(exit, &console);
            let kept = !matches!(exit, Exit::Done | Exit::Usage);
            assert_eq!(files.exists(&options.dir).expect("readable"), kept, "{exit:?}");
            if kept {
                remove_all(files.as_ref(), &options.dir).expect("cleaned up");
            }
        }
    }

    #[test]
    fn a_given_directory_is_never_removed() {
        let (_, mut dir) = DataDir::choose(Options::new("test", ""), Some(Path::new("/"))).expect("nothing is made");
        dir.leave(Exit::Done, &Console::new(true));
        assert!(Path::new("/").exists());
    }
}

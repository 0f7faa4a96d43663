//! Names: the platform's [`Files`] on the simulated disk. Absolute and relative paths begin at the same root.

use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use cutwater_platform::{DirEntry, File, Files, Lock, Open};

use super::SimDisk;
use super::file::{SimFile, SimLock};
use super::state::{Dir, Edit, Node, ROOT, State};
use super::trace::DiskOp;

fn error(kind: ErrorKind, path: &Path) -> io::Error {
    io::Error::new(kind, format!("{}: {kind}", path.display()))
}

fn parts(path: &Path) -> io::Result<Vec<&OsStr>> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(error(ErrorKind::InvalidInput, path)),
        }
    }
    Ok(parts)
}

impl State {
    /// What a path stands for.
    pub(crate) fn find(&self, path: &Path) -> io::Result<Node> {
        let mut at = Node::Dir(ROOT);
        for name in parts(path)? {
            let Node::Dir(dir) = at else { return Err(error(ErrorKind::NotADirectory, path)) };
            at = *self.dirs[&dir].cache.get(name).ok_or_else(|| error(ErrorKind::NotFound, path))?;
        }
        Ok(at)
    }

    /// The directory in which a path's last name stands, that name, and what it stands for.
    fn place(&self, path: &Path) -> io::Result<(u64, OsString, Option<Node>)> {
        let parts = parts(path)?;
        let (name, above) = parts.split_last().ok_or_else(|| error(ErrorKind::AlreadyExists, path))?;
        let mut dir = ROOT;
        for step in above {
            match self.dirs[&dir].cache.get(*step) {
                Some(Node::Dir(id)) => dir = *id,
                Some(Node::File(_)) => return Err(error(ErrorKind::NotADirectory, path)),
                None => return Err(error(ErrorKind::NotFound, path)),
            }
        }
        let node = self.dirs[&dir].cache.get(*name).copied();
        Ok((dir, name.to_os_string(), node))
    }

    fn dir_at(&self, path: &Path) -> io::Result<u64> {
        match self.find(path)? {
            Node::Dir(id) => Ok(id),
            Node::File(_) => Err(error(ErrorKind::NotADirectory, path)),
        }
    }

    /// True when `below` is `dir` or lies in it.
    fn holds(&self, dir: u64, below: u64) -> bool {
        let mut next = vec![dir];
        while let Some(at) = next.pop() {
            if at == below {
                return true;
            }
            next.extend(self.dirs[&at].cache.values().filter_map(|node| match node {
                Node::Dir(id) => Some(*id),
                Node::File(_) => None,
            }));
        }
        false
    }

    /// Moves a name; what stood at the new one is replaced. The rules of `rename(2)`.
    fn check_rename(&self, from: &Path, to: &Path) -> io::Result<(Vec<Edit>, bool)> {
        let (from_dir, from_name, node) = self.place(from)?;
        let node = node.ok_or_else(|| error(ErrorKind::NotFound, from))?;
        let (to_dir, to_name, taken) = self.place(to)?;
        match (node, taken) {
            (Node::Dir(moved), _) if self.holds(moved, to_dir) => return Err(error(ErrorKind::InvalidInput, to)),
            (Node::Dir(_), Some(Node::File(_))) => return Err(error(ErrorKind::NotADirectory, to)),
            (Node::File(_), Some(Node::Dir(_))) => return Err(error(ErrorKind::IsADirectory, to)),
            (Node::Dir(moved), Some(Node::Dir(there))) if moved != there && !self.dirs[&there].cache.is_empty() => {
                return Err(error(ErrorKind::DirectoryNotEmpty, to));
            }
            _ => {}
        }
        let edits = vec![
            Edit { dir: from_dir, name: from_name, node: None },
            Edit { dir: to_dir, name: to_name, node: Some(node) },
        ];
        Ok((edits, taken.is_some()))
    }

    fn open_handle(&mut self, disk: &SimDisk, id: u64, path: &Arc<Path>, writable: bool) -> SimFile {
        self.file(id).handles += 1;
        SimFile::new(disk.clone(), id, path.clone(), writable)
    }

    fn open(&mut self, disk: &SimDisk, path: &Path, how: Open) -> io::Result<SimFile> {
        self.alive()?;
        let (dir, name, node) = match self.place(path) {
            Err(_) if parts(path)?.is_empty() => return Err(error(ErrorKind::IsADirectory, path)),
            other => other?,
        };
        let path: Arc<Path> = Arc::from(path);
        match (node, how) {
            (Some(_), Open::CreateNew) => Err(error(ErrorKind::AlreadyExists, &path)),
            (Some(Node::Dir(_)), _) => Err(error(ErrorKind::IsADirectory, &path)),
            (None, Open::Read | Open::Write) => Err(error(ErrorKind::NotFound, &path)),
            (Some(Node::File(id)), how) => {
                self.enter()?;
                Ok(self.open_handle(disk, id, &path, how != Open::Read))
            }
            (None, Open::Create | Open::CreateNew) => {
                let id = self.step(DiskOp::Create, &path, None, (0, 0), |s, _| {
                    let id = s.add_file();
                    s.change_names(vec![Edit { dir, name, node: Some(Node::File(id)) }]);
                    Ok(id)
                })?;
                Ok(self.open_handle(disk, id, &path, true))
            }
        }
    }

    fn move_name(&mut self, op: DiskOp, from: &Path, to: &Path, edits: Vec<Edit>) -> io::Result<()> {
        self.step(op, &Arc::from(from), Some(to), (0, 0), |s, _| {
            s.change_names(edits);
            Ok(())
        })
    }

    fn remove(&mut self, op: DiskOp, path: &Path, dir: u64, name: OsString) -> io::Result<()> {
        self.step(op, &Arc::from(path), None, (0, 0), |s, _| {
            s.change_names(vec![Edit { dir, name, node: None }]);
            Ok(())
        })
    }
}

impl Files for SimDisk {
    fn temporary_name(&self, path: &Path) -> PathBuf {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        // The file to be created is the next one, so nothing else has its number.
        name.push(format!(".sim-{}.tmp", self.lock_state().next_id));
        path.with_file_name(name)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn File>> {
        let file = self.lock_state().open(self, path, how)?;
        Ok(Arc::new(file))
    }

    fn read_dir(&self, path: &Path) -> io::Result<Vec<DirEntry>> {
        let mut state = self.lock_state();
        state.enter()?;
        let dir = state.dir_at(path)?;
        let entry = |(name, node): (&OsString, &Node)| DirEntry {
            name: name.to_string_lossy().into_owned(),
            is_dir: matches!(node, Node::Dir(_)),
        };
        let mut entries: Vec<DirEntry> = state.dirs[&dir].cache.iter().map(entry).collect();
        entries.sort();
        Ok(entries)
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        let (dir, name, node) = state.place(path)?;
        if node.is_some() {
            return Err(error(ErrorKind::AlreadyExists, path));
        }
        state.step(DiskOp::CreateDir, &Arc::from(path), None, (0, 0), |s, _| {
            let id = s.fresh_id();
            s.dirs.insert(id, Dir::default());
            s.change_names(vec![Edit { dir, name, node: Some(Node::Dir(id)) }]);
            Ok(())
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        let (edits, _) = state.check_rename(from, to)?;
        if (edits[0].dir, &edits[0].name) == (edits[1].dir, &edits[1].name) {
            return Ok(());
        }
        state.move_name(DiskOp::Rename, from, to, edits)
    }

    fn publish(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        let free = matches!(state.place(to), Ok((_, _, None)));
        let known = state.place(from)?.2.is_some();
        if known && !free && state.place(to).is_ok() {
            return Err(error(ErrorKind::AlreadyExists, to));
        }
        let (edits, _) = state.check_rename(from, to)?;
        state.move_name(DiskOp::Publish, from, to, edits)
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        match state.place(path)? {
            (dir, name, Some(Node::File(_))) => state.remove(DiskOp::RemoveFile, path, dir, name),
            (_, _, Some(Node::Dir(_))) => Err(error(ErrorKind::IsADirectory, path)),
            (_, _, None) => Err(error(ErrorKind::NotFound, path)),
        }
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        match state.place(path)? {
            (_, _, Some(Node::Dir(id))) if !state.dirs[&id].cache.is_empty() => {
                Err(error(ErrorKind::DirectoryNotEmpty, path))
            }
            (dir, name, Some(Node::Dir(_))) => state.remove(DiskOp::RemoveDir, path, dir, name),
            (_, _, Some(Node::File(_))) => Err(error(ErrorKind::NotADirectory, path)),
            (_, _, None) => Err(error(ErrorKind::NotFound, path)),
        }
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.lock_state();
        state.alive()?;
        let dir = state.dir_at(path)?;
        let path = Arc::from(path);
        state.step(DiskOp::SyncDir, &path, None, (0, 0), |s, struck| if struck { Ok(()) } else { s.sync_dir(dir) })
    }

    fn kind(&self, path: &Path) -> io::Result<Option<bool>> {
        let mut state = self.lock_state();
        state.enter()?;
        match state.find(path) {
            Ok(node) => Ok(Some(matches!(node, Node::Dir(_)))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn lock(&self, path: &Path) -> io::Result<Option<Box<dyn Lock>>> {
        let mut state = self.lock_state();
        let file = state.open(self, path, Open::Create)?;
        let taken = !state.locks.insert(file.id());
        drop(state);
        // Dropping the handle takes the lock of the state itself.
        Ok(if taken { None } else { Some(Box::new(SimLock::new(file))) })
    }
}

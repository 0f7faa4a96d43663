//! The commit groups of a job, by name, and what each is told of its sources when a checkpoint is committed.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::graph::job::Building;
use crate::graph::node::Make;
use crate::sink::CommitGroup;
use crate::snapshot::Manifest;
use crate::source::{Follow, SplitState};

/// What is told, by group.
pub(crate) type Marks = BTreeMap<String, Vec<Vec<u8>>>;

/// The groups that commit what a job's sinks prepared, or are told how far its sources have come.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    by_name: BTreeMap<String, Arc<dyn CommitGroup>>,
    /// By the source's name.
    followed: BTreeMap<String, Arc<dyn Follow>>,
}

impl Groups {
    pub(crate) fn of(building: &Building) -> Groups {
        let mut groups = Groups::default();
        for node in &building.nodes {
            let group = match &node.make {
                Make::Sink { group: Some(group), .. } => group.clone(),
                Make::Source { follow: Some(follow), .. } => {
                    groups.followed.insert(node.name.clone(), follow.clone());
                    follow.group()
                }
                _ => continue,
            };
            groups.by_name.insert(group.name().to_string(), group);
        }
        groups
    }

    /// What the groups are told when this checkpoint is committed.
    pub(crate) fn marks(&self, manifest: &Manifest) -> Marks {
        let mut marks = Marks::new();
        if self.followed.is_empty() {
            return marks;
        }
        for operator in &manifest.plan.operators {
            let Some(follow) = self.followed.get(&operator.name) else { continue };
            let instances = manifest.snapshots.iter().filter(|snapshot| snapshot.instance.operator == operator.id);
            // Another kind of operator may have had the name in an earlier version of the program.
            let splits: Vec<SplitState> = instances
                .flat_map(|snapshot| &snapshot.blobs)
                .filter_map(|blob| {
                    postcard::from_bytes::<SplitState>(&blob.bytes).ok().filter(|s| s.split == blob.name)
                })
                .collect();
            if let Some(mark) = follow.mark(manifest.checkpoint, &splits) {
                marks.entry(follow.group().name().to_string()).or_default().push(mark);
            }
        }
        marks
    }
}

impl Deref for Groups {
    type Target = BTreeMap<String, Arc<dyn CommitGroup>>;

    fn deref(&self) -> &Self::Target {
        &self.by_name
    }
}

//! The searches of this model.

use super::Overtaking;
use crate::config::{Edge, Graph, Role};

/// The searches, and for each slip the one that finds it.
pub fn searches() -> Vec<Overtaking> {
    let search = |name, roles: Vec<Role>, edges: &[(usize, usize, bool)]| {
        let edges = edges.iter().map(|&(from, to, by_key)| Edge { from, to, by_key }).collect();
        let graph = Graph { roles, edges };
        Overtaking { name, graph, fixed: vec![], workers: [1, 1], credit: 1, checkpoints: 1, slip: None }
    };
    let counting = |name, records: &[u16]| {
        let roles = vec![Role::Source(vec![records.to_vec()]), Role::Count, Role::Sink];
        search(name, roles, &[(0, 1, true), (1, 2, false)])
    };
    let diamond = vec![Role::Source(vec![vec![0, 0]]), Role::Pass, Role::Pass, Role::Count, Role::Sink];
    let ways = [(0, 1, false), (0, 2, false), (1, 3, true), (2, 3, true), (3, 4, false)];
    let within = vec![Role::Source(vec![vec![3, 3]]), Role::Pass, Role::Count, Role::Sink];
    let within_ways = [(0, 1, false), (1, 2, true), (2, 3, false)];
    vec![
        counting("overtaking: one worker", &[0, 0]),
        Overtaking { workers: [1, 2], ..counting("overtaking: from one worker to two", &[3, 3]) },
        Overtaking { workers: [2, 1], ..counting("overtaking: from two workers to one", &[0, 3]) },
        Overtaking {
            workers: [1, 2],
            fixed: vec![2],
            ..search("overtaking: within a worker, then by key", within, &within_ways)
        },
        Overtaking { fixed: vec![1], ..counting("overtaking: an edge without bytes", &[0, 0]) },
        Overtaking { checkpoints: 2, ..counting("overtaking: two checkpoints", &[0, 0]) },
        search("overtaking: a diamond", diamond, &ways),
    ]
}

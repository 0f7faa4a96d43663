//! The job as its build function sees it.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cutwater_platform::Platform;

use crate::config::{Guarantee, Limits};
use crate::error::BuildError;
use crate::graph::node::{InputEdge, Make, Node, Outputs};
use crate::graph::stream::Stream;
use crate::graph::time_mode::Untimed;
use crate::id::OperatorId;
use crate::source::Source;
use crate::source::driver::ReaderDriver;

/// The world and the options of a job; the same for every worker and attempt of a run.
#[derive(Clone, Debug)]
pub struct Environment {
    /// The job's name.
    pub name: String,
    /// The data directory.
    pub dir: PathBuf,
    /// The promise.
    pub guarantee: Guarantee,
    /// Limits inside the dataflow.
    pub limits: Limits,
    /// Whether the holder of the data directory may be killed.
    pub take_over: bool,
    /// Where connectors find what they connect to, by their names.
    pub places: BTreeMap<String, String>,
    /// The world.
    pub platform: Platform,
    shared: Shared,
}

/// Things of which a run has one: an open log, for example.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<HashMap<String, Arc<dyn Any + Send + Sync>>>>);

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

impl Environment {
    /// The environment of a run.
    pub fn new(options: &crate::config::Options) -> Environment {
        Environment {
            name: options.name.clone(),
            dir: options.dir.clone(),
            guarantee: options.guarantee,
            limits: options.limits,
            take_over: options.take_over,
            places: options.places.clone(),
            platform: options.platform.clone(),
            shared: Shared::default(),
        }
    }

    /// The run's one thing of this key, made by the first caller; it lives until the run ends, across attempts.
    ///
    /// # Errors
    /// What `make` says; and if the key stands for something of another type.
    pub fn shared<R: Send + Sync + 'static>(
        &self,
        key: &str,
        make: impl FnOnce(&Environment) -> Result<R, BuildError>,
    ) -> Result<Arc<R>, BuildError> {
        let mut all =
            self.shared.0.lock().map_err(|_| BuildError::refused(key, "an earlier attempt to make it panicked"))?;
        if let Some(found) = all.get(key) {
            let found = found.clone().downcast::<R>();
            return found.map_err(|_| BuildError::refused(key, "this key stands for something of another type"));
        }
        let made = Arc::new(make(self)?);
        all.insert(key.to_string(), made.clone());
        Ok(made)
    }
}

/// A job being built. Cheap to clone; all clones describe one job.
#[derive(Clone)]
pub struct Job {
    pub(crate) inner: Rc<RefCell<Building>>,
}

pub(crate) struct Building {
    pub(crate) environment: Environment,
    pub(crate) nodes: Vec<Node>,
    /// Outputs that may lead nowhere.
    pub(crate) discarded: Vec<(OperatorId, usize)>,
    /// The first thing that went wrong while building; reported at the end, so that handles need no `?`.
    pub(crate) trouble: Option<BuildError>,
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({} operators)", self.inner.borrow().nodes.len())
    }
}

impl Job {
    /// An empty job.
    pub fn new(environment: Environment) -> Job {
        Job { inner: Rc::new(RefCell::new(Building { environment, nodes: vec![], discarded: vec![], trouble: None })) }
    }

    /// The world and the options.
    pub fn environment(&self) -> Environment {
        self.inner.borrow().environment.clone()
    }

    /// Reads `source` under a name, by which its positions are found again after a restart.
    pub fn source<S: Source>(&self, name: impl Into<String>, source: S) -> Stream<S::Item, Untimed> {
        let source = Rc::new(source);
        let splits = {
            let source = source.clone();
            Box::new(move || source.splits())
        };
        let (replay, follow) = (source.replay(), source.follow());
        let make = Box::new(move || Box::new(ReaderDriver::new(source)) as Box<dyn crate::source::SourceDriver>);
        let outputs = self.add(name.into(), "source", vec![], 1, Make::Source { splits, replay, make, follow });
        outputs.stream::<S::Item, Untimed>(0)
    }

    /// Records that something can't be built; the first such error is what the build ends with.
    pub fn refuse(&self, error: BuildError) {
        self.inner.borrow_mut().trouble.get_or_insert(error);
    }

    pub(crate) fn add(
        &self,
        name: String,
        kind: impl Into<String>,
        inputs: Vec<InputEdge>,
        outputs: usize,
        make: Make,
    ) -> Outputs {
        let mut inner = self.inner.borrow_mut();
        let id = OperatorId(u32::try_from(inner.nodes.len()).expect("fewer than 2^32 operators"));
        let (was, migrations) = (vec![], vec![]);
        inner.nodes.push(Node { id, name, kind: kind.into(), inputs, outputs, make, was, migrations });
        drop(inner);
        Outputs { job: self.clone(), node: id }
    }

    /// A name for an operator that keeps nothing by name.
    pub(crate) fn auto_name(&self, kind: &str) -> String {
        format!("{kind}-{}", self.inner.borrow().nodes.len())
    }
}

//! Side outputs: second streams out of a process function, by name and type.

use std::any::TypeId;
use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use cutwater_engine::exchange::CanonicalKey;
use cutwater_engine::graph::TimeMode;
use cutwater_engine::operator::Context;
use cutwater_engine::state::StateKey;

use super::scope::Scope;

/// The name and type of a second stream out of a process function: declared by the function
/// ([`Declare::side`](super::Declare::side)), taken from what it gives ([`Processed::side`](super::Processed::side)).
pub struct Side<S> {
    name: &'static str,
    record: PhantomData<fn() -> S>,
}

impl<S> Side<S> {
    /// A side output of this name.
    pub const fn new(name: &'static str) -> Side<S> {
        Side { name, record: PhantomData }
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        self.name
    }
}

impl<S> Clone for Side<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Side<S> {}

impl<S> fmt::Debug for Side<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Side<{}>({:?})", std::any::type_name::<S>(), self.name)
    }
}

/// Where a process function puts records of a side output.
pub struct SideOut<S: 'static, M: TimeMode> {
    buffer: Rc<RefCell<Vec<M::Of<S>>>>,
}

impl<S: 'static, M: TimeMode> fmt::Debug for SideOut<S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SideOut<{}>", std::any::type_name::<S>())
    }
}

impl<S: 'static, M: TimeMode> SideOut<S, M> {
    /// Emits a record, with the time that the main output would have.
    pub fn emit<K: CanonicalKey + StateKey, Out: 'static>(&self, cx: &Scope<'_, K, Out, M>, record: S) {
        self.buffer.borrow_mut().push(M::at(cx.out_time(), record));
    }
}

/// The operator's end of a side output.
pub(super) struct SideBuffer<M> {
    pub(super) name: &'static str,
    pub(super) record: TypeId,
    buffer: Rc<dyn Flush>,
    mode: PhantomData<fn(M)>,
}

impl<M: TimeMode> SideBuffer<M> {
    pub(super) fn new<S: Send + 'static>(side: Side<S>) -> (SideBuffer<M>, SideOut<S, M>)
    where
        M::Of<S>: Send,
    {
        let buffer = Rc::new(RefCell::new(Vec::<M::Of<S>>::new()));
        let end = SideBuffer { name: side.name, record: TypeId::of::<S>(), buffer: buffer.clone(), mode: PhantomData };
        (end, SideOut { buffer })
    }

    /// Records that wait.
    pub(super) fn len(&self) -> usize {
        self.buffer.len()
    }

    /// Emits what waits.
    pub(super) fn flush(&self, port: usize, cx: &mut Context<'_>) {
        self.buffer.flush(port, cx);
    }
}

/// A buffer, its type forgotten.
trait Flush {
    fn len(&self) -> usize;
    fn flush(&self, port: usize, cx: &mut Context<'_>);
}

impl<R: Send + 'static> Flush for RefCell<Vec<R>> {
    fn len(&self) -> usize {
        self.borrow().len()
    }

    fn flush(&self, port: usize, cx: &mut Context<'_>) {
        cx.emit(port, self.take());
    }
}

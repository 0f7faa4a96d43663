//! The control plane as timely operators: trigger, coordinator, committer, janitor, in this order around worker 0's part.
//!
//! ```text
//!   trigger --barriers--> sources ... --acks--> coordinator --permits--> committer --commits--> janitor
//! ```
//!
//! What each of them decides is in `control.rs`; here is only how timely runs them and who wakes whom.

use timely::container::CapacityContainerBuilder;
use timely::dataflow::Scope;
use timely::dataflow::channels::pact::{Exchange, Pipeline};
use timely::dataflow::operators::Concatenate;
use timely::dataflow::operators::generic::OutputBuilder;
use timely::dataflow::operators::generic::builder_rc::OperatorBuilder;
use timely::progress::operate::FrontierInterest;

use crate::checkpoint::Permit;
use crate::id::CheckpointId;
use crate::worker::build::{Acks, BarrierStream, Parts, activating};
use crate::worker::control::{Committer, Coordinator, Janitor, Trigger};
use crate::worker::place::Alarm;
use crate::worker::ports::Ack;

/// Emits the barriers to every source.
pub(super) fn trigger<'s>(scope: Scope<'s, u64>, parts: &Parts) -> BarrierStream<'s> {
    let mut builder = OperatorBuilder::new("trigger".to_string(), scope);
    let address = builder.operator_info().address;
    let (output, stream) = builder.new_output::<Vec<(u64, u64)>>();
    let mut output = OutputBuilder::<u64, CapacityContainerBuilder<Vec<(u64, u64)>>>::from(output);
    if parts.plane.is_some() {
        parts.progress.on_stop(activating(scope, &address));
    }
    let activator = Alarm::new(scope.activator_for(address), parts.alarms.clone());
    let (plane, attempt) = (parts.plane.clone(), parts.attempt.clone());
    let workers = u64::from(parts.assignment.workers().get());
    builder.build(move |mut capabilities| {
        let capability = capabilities.pop().expect("one output, one capability");
        let mut trigger = plane.map(|plane| Trigger::new(plane, capability, activator));
        move |_| {
            if attempt.is_over() {
                return;
            }
            let Some(trigger) = &mut trigger else { return };
            let mut output = output.activate();
            let step = trigger.step(|capability, n| {
                output.session(capability).give_iterator((0..workers).map(|worker| (worker, n.0)));
            });
            if let Err(failure) = step {
                attempt.fail(failure);
            }
        }
    });
    stream
}

/// Takes the acks of every instance, and does the rest.
pub(super) fn control_plane<'s>(scope: Scope<'s, u64>, parts: &Parts, acks: Vec<Acks<'s>>) {
    let acks = scope.concatenate(acks);
    let attempt = parts.attempt.clone();

    let mut builder = OperatorBuilder::new("coordinator".to_string(), scope);
    let address = builder.operator_info().address;
    let mut input = builder.new_input(acks, Exchange::new(|_: &Ack| 0));
    builder.set_notify_for(0, FrontierInterest::Always);
    let (output, permits) = builder.new_output::<Vec<Permit>>();
    let mut output = OutputBuilder::<u64, CapacityContainerBuilder<Vec<Permit>>>::from(output);
    let mut coordinator = parts.plane.clone().map(|plane| Coordinator::new(plane, activating(scope, &address)));
    let over = attempt.clone();
    builder.build(move |_| {
        move |frontiers| {
            let Some(coordinator) = coordinator.as_mut().filter(|_| !over.is_over()) else { return };
            input.for_each(|capability, acks| {
                let keep = || capability.retain_least(0).expect("an ack has a time");
                coordinator.acks(acks.drain(..), keep);
            });
            let frontier = frontiers[0].frontier().first().copied();
            let mut output = output.activate();
            let step = coordinator.step(frontier, |capability, permit| output.session(capability).give(permit));
            if let Err(failure) = step {
                over.fail(failure);
            }
        }
    });

    let mut builder = OperatorBuilder::new("committer".to_string(), scope);
    let address = builder.operator_info().address;
    let mut input = builder.new_input(permits, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let (output, committed) = builder.new_output::<Vec<u64>>();
    let mut output = OutputBuilder::<u64, CapacityContainerBuilder<Vec<u64>>>::from(output);
    let mut committer = parts.plane.clone().map(|plane| Committer::new(plane, activating(scope, &address)));
    let over = attempt.clone();
    builder.build(move |_| {
        move |_| {
            let Some(committer) = committer.as_mut().filter(|_| !over.is_over()) else { return };
            input.for_each(|capability, permits| {
                for permit in permits.drain(..) {
                    committer.permit(permit, capability.retain_least(0).expect("a permit has a time"));
                }
            });
            let mut output = output.activate();
            let step = committer.step(|capability, n| output.session(capability).give(n.0));
            if let Err(failure) = step {
                over.fail(failure);
            }
        }
    });

    let mut builder = OperatorBuilder::new("janitor".to_string(), scope);
    let address = builder.operator_info().address;
    let mut input = builder.new_input(committed, Pipeline);
    builder.set_notify_for(0, FrontierInterest::Never);
    let mut janitor = parts.plane.clone().map(|plane| Janitor::new(plane, &activating(scope, &address)));
    builder.build_reschedule(move |_| {
        move |_| {
            let Some(janitor) = janitor.as_mut().filter(|_| !attempt.is_over()) else { return false };
            input.for_each(|_, committed| committed.drain(..).for_each(|n| janitor.committed(CheckpointId(n))));
            if let Err(failure) = janitor.step() {
                attempt.fail(failure);
            }
            // Timely would let the dataflow end when the last commit has come in, but not yet been recorded.
            janitor.is_busy()
        }
    });
}

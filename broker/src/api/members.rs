//! Members of groups: `JoinGroup`, `SyncGroup`, `Heartbeat`, `LeaveGroup`.

use std::time::Duration;

use bytes::Bytes;
use kafka_protocol::messages::join_group_response::JoinGroupResponseMember;
use kafka_protocol::messages::leave_group_response::MemberResponse;
use kafka_protocol::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse,
    SyncGroupRequest, SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

use super::Call;
use crate::access::acl::Operation;
use crate::errors::{NONE, text};
use crate::group::member::{Join, Refusal, Who};

fn millis(ms: i32) -> Duration {
    Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

/// Absent and null alike are nothing.
pub(super) fn plain(text: &Option<StrBytes>) -> Option<&str> {
    text.as_ref().map(StrBytes::as_str)
}

pub(super) fn join(call: &Call<'_>, request: JoinGroupRequest) -> JoinGroupResponse {
    let protocols = request.protocols.into_iter().map(|p| (p.name.to_string(), p.metadata.to_vec()));
    let session = millis(request.session_timeout_ms);
    let join = Join {
        member: request.member_id.to_string(),
        instance: plain(&request.group_instance_id).map(String::from),
        client: call.client.to_string(),
        host: format!("/{}", call.caller.address),
        session,
        // Version 0 knows one time for both.
        rebalance: if call.version() == 0 { session } else { millis(request.rebalance_timeout_ms) },
        protocol_type: request.protocol_type.to_string(),
        protocols: protocols.collect(),
        id_first: call.version() >= 4,
        can_skip: call.version() >= 9,
    };
    let refused = |error| Refusal { error, member: String::new() };
    let allowed = call.group(Operation::Read, &request.group_id).map_err(refused);
    match allowed.and_then(|()| call.service.groups.join(&request.group_id, join, &call.caller.peer)) {
        Ok(joined) => {
            let members = joined.members.into_iter().map(|(id, instance, metadata)| {
                JoinGroupResponseMember::default()
                    .with_member_id(text(id))
                    .with_group_instance_id(instance.map(text).filter(|_| call.version() >= 5))
                    .with_metadata(Bytes::from(metadata))
            });
            let response = JoinGroupResponse::default()
                .with_generation_id(joined.generation)
                .with_protocol_name(Some(text(joined.protocol)))
                .with_leader(text(joined.leader))
                .with_member_id(text(joined.member))
                .with_members(members.collect());
            let response = match call.version() {
                7.. => response.with_protocol_type(Some(text(joined.protocol_type))),
                _ => response,
            };
            if call.version() >= 9 { response.with_skip_assignment(joined.skip_assignment) } else { response }
        }
        Err(refusal) => {
            let id = if refusal.member.is_empty() { request.member_id } else { text(refusal.member) };
            let protocol = if call.version() >= 7 { None } else { Some(text("")) };
            JoinGroupResponse::default()
                .with_error_code(refusal.error.code())
                .with_generation_id(-1)
                .with_protocol_name(protocol)
                .with_member_id(id)
        }
    }
}

pub(super) fn sync(call: &Call<'_>, request: SyncGroupRequest) -> SyncGroupResponse {
    let who = Who {
        member: &request.member_id,
        instance: plain(&request.group_instance_id),
        generation: request.generation_id,
    };
    let protocol = (plain(&request.protocol_type), plain(&request.protocol_name));
    let assignments = request.assignments.iter().map(|a| (a.member_id.to_string(), a.assignment.to_vec())).collect();
    let allowed = call.group(Operation::Read, &request.group_id);
    let (groups, peer) = (&call.service.groups, &call.caller.peer);
    match allowed.and_then(|()| groups.sync(&request.group_id, who, protocol, assignments, peer)) {
        Ok(synced) => {
            let response = SyncGroupResponse::default().with_assignment(Bytes::from(synced.assignment));
            match call.version() {
                5.. => response
                    .with_protocol_type(Some(text(synced.protocol_type)))
                    .with_protocol_name(Some(text(synced.protocol))),
                _ => response,
            }
        }
        Err(error) => SyncGroupResponse::default().with_error_code(error.code()),
    }
}

pub(super) fn heartbeat(call: &Call<'_>, request: HeartbeatRequest) -> HeartbeatResponse {
    let who = Who {
        member: &request.member_id,
        instance: plain(&request.group_instance_id),
        generation: request.generation_id,
    };
    let allowed = call.group(Operation::Read, &request.group_id);
    let alive = allowed.and_then(|()| call.service.groups.heartbeat(&request.group_id, who));
    HeartbeatResponse::default().with_error_code(alive.err().map_or(NONE, |error| error.code()))
}

pub(super) fn leave(call: &Call<'_>, request: LeaveGroupRequest) -> LeaveGroupResponse {
    if let Err(error) = call.group(Operation::Read, &request.group_id) {
        return LeaveGroupResponse::default().with_error_code(error.code());
    }
    let groups = &call.service.groups;
    let left = |member: &str, instance: Option<&str>| {
        groups.leave(&request.group_id, member, instance).err().map_or(NONE, |error| error.code())
    };
    if call.version() < 3 {
        return LeaveGroupResponse::default().with_error_code(left(&request.member_id, None));
    }
    let members = request.members.iter().map(|member| {
        MemberResponse::default()
            .with_error_code(left(&member.member_id, plain(&member.group_instance_id)))
            .with_member_id(member.member_id.clone())
            .with_group_instance_id(member.group_instance_id.clone())
    });
    LeaveGroupResponse::default().with_members(members.collect())
}

//! Groups from outside: `DescribeGroups`, `ListGroups`, `DeleteGroups`.

use std::collections::BTreeSet;

use bytes::Bytes;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::delete_groups_response::DeletableGroupResult;
use kafka_protocol::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse, GroupId,
    ListGroupsRequest, ListGroupsResponse,
};

use super::Call;
use super::group_offsets::of_group;
use super::operations::{self, UNASKED};
use crate::access::acl::Operation;
use crate::errors::{NONE, text};
use crate::group::machine::Phase;

/// What a group is called that nobody knows.
const DEAD: &str = "Dead";
const CLASSIC: &str = "classic";
/// What offsets without members belong to.
const CONSUMER: &str = "consumer";

/// All groups that have, or had, members or offsets.
fn names(call: &Call<'_>) -> Result<BTreeSet<String>, ResponseError> {
    let with_offsets = call.service.log.groups().map_err(|e| of_group(&e))?;
    Ok(call.service.groups.names().into_iter().chain(with_offsets).collect())
}

pub(super) fn describe(call: &Call<'_>, request: DescribeGroupsRequest) -> DescribeGroupsResponse {
    let known = names(call);
    let groups = request.groups.into_iter().map(|id| {
        let described = DescribedGroup::default().with_authorized_operations(UNASKED);
        if let Err(error) = call.group(Operation::Describe, &id) {
            return described.with_error_code(error.code()).with_group_id(id);
        }
        let known = match &known {
            Ok(known) => known.contains(id.as_str()),
            Err(error) => return described.with_error_code(error.code()).with_group_id(id),
        };
        let hosted = call.service.groups.look(&id, |hosted| {
            let group = &hosted.group;
            if hosted.consumer.is_some() {
                return unknown(
                    described.clone(),
                    call.version(),
                    &format!("group {} is no classic group", id.as_str()),
                );
            }
            let members = group.members.iter().map(|(id, member)| {
                let instance = member.instance.clone().map(text).filter(|_| call.version() >= 4);
                DescribedGroupMember::default()
                    .with_member_id(text(id.clone()))
                    .with_group_instance_id(instance)
                    .with_client_id(text(member.client.clone()))
                    .with_client_host(text(member.host.clone()))
                    .with_member_metadata(Bytes::from(member.metadata(&group.protocol)))
                    .with_member_assignment(Bytes::from(member.assignment.clone()))
            });
            described
                .clone()
                .with_group_state(text(group.phase.name()))
                .with_protocol_type(text(group.protocol_type.clone()))
                .with_protocol_data(text(group.protocol.clone()))
                .with_members(members.collect())
        });
        let described = hosted.unwrap_or_else(|| match known {
            true => described.with_group_state(text(Phase::Empty.name())).with_protocol_type(text(CONSUMER)),
            false => unknown(described, call.version(), &format!("group {} is unknown", id.as_str())),
        });
        let described = match request.include_authorized_operations && described.error_code == NONE {
            true => described.with_authorized_operations(operations::of_group(call, &id)),
            false => described,
        };
        described.with_group_id(id)
    });
    DescribeGroupsResponse::default().with_groups(groups.collect())
}

/// There is no such classic group: an error where the answer has a place for it, else a state.
fn unknown(described: DescribedGroup, version: i16, why: &str) -> DescribedGroup {
    let described = described.with_group_state(text(DEAD));
    match version {
        6.. => described
            .with_error_code(ResponseError::GroupIdNotFound.code())
            .with_error_message(Some(text(why.to_string()))),
        _ => described,
    }
}

pub(super) fn list(call: &Call<'_>, request: ListGroupsRequest) -> ListGroupsResponse {
    let names = match names(call) {
        Ok(names) => names,
        Err(error) => return ListGroupsResponse::default().with_error_code(error.code()),
    };
    let all = call.cluster(Operation::Describe).is_ok();
    let seen = |name: &String| all || call.group(Operation::Describe, name).is_ok();
    let states = request.states_filter;
    let kinds = request.types_filter;
    let wanted = |state: &str| states.is_empty() || states.iter().any(|asked| asked.eq_ignore_ascii_case(state));
    let of_kind = |kind: &str| kinds.is_empty() || kinds.iter().any(|asked| asked.eq_ignore_ascii_case(kind));
    let groups = names.into_iter().filter(seen).filter_map(|name| {
        let summary = call.service.groups.summary(&name);
        let protocol = call.service.groups.look(&name, |hosted| hosted.group.protocol_type.clone());
        let protocol = match summary.kind {
            CLASSIC => protocol.unwrap_or_else(|| CONSUMER.to_string()),
            _ => CONSUMER.to_string(),
        };
        (wanted(summary.state) && of_kind(summary.kind)).then(|| {
            let listed = ListedGroup::default().with_group_id(GroupId(text(name))).with_protocol_type(text(protocol));
            let listed = if call.version() >= 4 { listed.with_group_state(text(summary.state)) } else { listed };
            if call.version() >= 5 { listed.with_group_type(text(summary.kind)) } else { listed }
        })
    });
    ListGroupsResponse::default().with_groups(groups.collect())
}

pub(super) fn delete(call: &Call<'_>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let known = names(call);
    let results = request.groups_names.into_iter().map(|id| {
        let deleted = match &known {
            _ if call.group(Operation::Delete, &id).is_err() => Err(ResponseError::GroupAuthorizationFailed),
            Err(error) => Err(*error),
            Ok(known) if !known.contains(id.as_str()) => Err(ResponseError::GroupIdNotFound),
            Ok(_) => {
                let log = &call.service.log;
                let deleted = call.service.groups.delete(&id, || log.delete_group(&id));
                deleted.and_then(|deleted| deleted.map_err(|e| of_group(&e)))
            }
        };
        let code = deleted.err().map_or(NONE, |error| error.code());
        DeletableGroupResult::default().with_group_id(id).with_error_code(code)
    });
    DeleteGroupsResponse::default().with_results(results.collect())
}

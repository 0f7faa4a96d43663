//! `DescribeAcls`, `CreateAcls`, `DeleteAcls`: rules over the wire.

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_acls_request::AclCreation;
use kafka_protocol::messages::create_acls_response::AclCreationResult;
use kafka_protocol::messages::delete_acls_response::{DeleteAclsFilterResult, DeleteAclsMatchingAcl};
use kafka_protocol::messages::describe_acls_response::{AclDescription, DescribeAclsResource};
use kafka_protocol::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse,
};

use super::Call;
use super::scram_users::{no_store, of_access};
use crate::access::AccessError;
use crate::access::acl::{ANY as WILDCARD, Acl, Kind, Operation, Pattern, Permission, Rules};
use crate::access::book::ACLS_MAX;
use crate::access::store::Store;
use crate::errors::{Answered, code, message, text};

/// "Whichever" in a filter.
const ANY: i8 = 1;
/// "Whichever applies to a thing of this name" in a filter of patterns.
const MATCH: i8 = 2;

/// The store, if rights are in force and the caller may do that.
fn allowed<'a>(call: &'a Call<'_>, operation: Operation) -> Answered<&'a Store> {
    call.cluster(operation).map_err(|error| (error, "not allowed".to_string()))?;
    let off = || (ResponseError::SecurityDisabled, "this server has no authorisation (--authorize)".to_string());
    if !call.service.access.authorizes() {
        return Err(off());
    }
    call.service.access.store().ok_or_else(no_store)
}

/// Which rules somebody asks about.
struct Filter {
    kind: Option<Kind>,
    name: Option<String>,
    pattern: Option<Pattern>,
    /// Whether rules count that apply to a thing of this name, however they name it.
    applies: bool,
    principal: Option<String>,
    host: Option<String>,
    operation: Option<Operation>,
    permission: Option<Permission>,
}

/// A number in a filter: any, or one that is known.
fn one<T: TryFrom<i8>>(number: i8) -> Answered<Option<T>> {
    let unknown = |_| (ResponseError::InvalidRequest, format!("a filter has an unknown number {number}"));
    if number == ANY { Ok(None) } else { T::try_from(number).map(Some).map_err(unknown) }
}

impl Filter {
    fn takes(&self, acl: &Acl) -> bool {
        let same = |wanted: &Option<String>, is: &str| wanted.as_ref().is_none_or(|wanted| wanted == is);
        let named = match &self.name {
            Some(name) if self.applies => match acl.pattern {
                Pattern::Literal => acl.name == *name || acl.name == WILDCARD,
                Pattern::Prefixed => name.starts_with(&acl.name),
            },
            wanted => same(wanted, &acl.name),
        };
        named
            && self.kind.is_none_or(|kind| kind == acl.kind)
            && self.pattern.is_none_or(|pattern| pattern == acl.pattern)
            && same(&self.principal, &acl.principal)
            && same(&self.host, &acl.host)
            && self.operation.is_none_or(|operation| operation == acl.operation)
            && self.permission.is_none_or(|permission| permission == acl.permission)
    }
}

/// The fields of a filter are the same in two requests of different types.
macro_rules! filter {
    ($asked:expr) => {{
        let asked = $asked;
        let text = |text: &Option<kafka_protocol::protocol::StrBytes>| text.as_ref().map(ToString::to_string);
        let applies = asked.pattern_type_filter == MATCH;
        (|| {
            Ok::<Filter, (ResponseError, String)>(Filter {
                kind: one(asked.resource_type_filter)?,
                name: text(&asked.resource_name_filter),
                pattern: if applies { None } else { one(asked.pattern_type_filter)? },
                applies,
                principal: text(&asked.principal_filter),
                host: text(&asked.host_filter),
                operation: one(asked.operation)?,
                permission: one(asked.permission_type)?,
            })
        })()
    }};
}

pub(super) fn describe(call: &Call<'_>, request: DescribeAclsRequest) -> DescribeAclsResponse {
    let found = allowed(call, Operation::Describe).and_then(|store| Ok((store, filter!(&request)?)));
    let (error, why) = (code(&found), message(&found));
    let mut resources: Vec<DescribeAclsResource> = Vec::new();
    if let Ok((store, filter)) = found {
        // They are in the order of their resources.
        for acl in store.book().rules.all().iter().filter(|acl| filter.takes(acl)) {
            let (kind, pattern) = (acl.kind as i8, acl.pattern as i8);
            let described = AclDescription::default()
                .with_principal(text(acl.principal.clone()))
                .with_host(text(acl.host.clone()))
                .with_operation(acl.operation as i8)
                .with_permission_type(acl.permission as i8);
            let same = |last: &&mut DescribeAclsResource| {
                last.resource_type == kind && last.pattern_type == pattern && *last.resource_name == *acl.name
            };
            match resources.last_mut().filter(same) {
                Some(last) => last.acls.push(described),
                None => resources.push(
                    DescribeAclsResource::default()
                        .with_resource_type(kind)
                        .with_resource_name(text(acl.name.clone()))
                        .with_pattern_type(pattern)
                        .with_acls(vec![described]),
                ),
            }
        }
    }
    DescribeAclsResponse::default().with_error_code(error).with_error_message(why).with_resources(resources)
}

fn rule(creation: &AclCreation) -> Answered<Acl> {
    let invalid = |why: &str| (ResponseError::InvalidRequest, why.to_string());
    let unknown = |()| invalid("a rule names one kind, pattern, operation and permission");
    let acl = Acl {
        kind: creation.resource_type.try_into().map_err(unknown)?,
        pattern: creation.resource_pattern_type.try_into().map_err(unknown)?,
        name: creation.resource_name.to_string(),
        principal: creation.principal.to_string(),
        host: creation.host.to_string(),
        operation: creation.operation.try_into().map_err(unknown)?,
        permission: creation.permission_type.try_into().map_err(unknown)?,
    };
    acl.check().map_err(invalid)?;
    Ok(acl)
}

pub(super) fn create(call: &Call<'_>, request: CreateAclsRequest) -> CreateAclsResponse {
    let rules: Vec<Answered<Acl>> = request.creations.iter().map(rule).collect();
    let done = allowed(call, Operation::Alter).and_then(|store| {
        let changed = store.change(|book| {
            let all: std::collections::BTreeSet<Acl> =
                book.rules.all().iter().chain(rules.iter().flatten()).cloned().collect();
            if all.len() > ACLS_MAX {
                return Err(AccessError::Refused(format!("there would be more than {ACLS_MAX} rules")));
            }
            book.rules = all.into_iter().collect();
            Ok(())
        });
        changed.map_err(|e| of_access(&e))
    });
    let results = rules.iter().map(|rule| {
        let done = match (&done, rule) {
            (Err(all), _) => Err(all.clone()),
            (Ok(()), rule) => rule.as_ref().map(|acl| tracing::info!(?acl, "a rule was made")).map_err(Clone::clone),
        };
        AclCreationResult::default().with_error_code(code(&done)).with_error_message(message(&done))
    });
    CreateAclsResponse::default().with_results(results.collect())
}

pub(super) fn delete(call: &Call<'_>, request: DeleteAclsRequest) -> DeleteAclsResponse {
    let filters: Vec<Answered<Filter>> = request.filters.iter().map(|asked| filter!(asked)).collect();
    let done = allowed(call, Operation::Alter).and_then(|store| {
        let changed = store.change(|book| {
            let found = filters.iter().map(|filter| -> Vec<Acl> {
                let Ok(filter) = filter else { return Vec::new() };
                book.rules.all().iter().filter(|acl| filter.takes(acl)).cloned().collect()
            });
            let found: Vec<Vec<Acl>> = found.collect();
            let gone: std::collections::BTreeSet<&Acl> = found.iter().flatten().collect();
            let left: Rules = book.rules.all().iter().filter(|acl| !gone.contains(acl)).cloned().collect();
            book.rules = left;
            Ok::<_, AccessError>(found)
        });
        changed.map_err(|e| of_access(&e))
    });
    let results = filters.iter().enumerate().map(|(n, filter)| {
        let done = match (&done, filter) {
            (Err(all), _) | (Ok(_), Err(all)) => Err(all.clone()),
            (Ok(found), Ok(_)) => Ok(&found[n]),
        };
        let result = DeleteAclsFilterResult::default().with_error_code(code(&done)).with_error_message(message(&done));
        let gone = done.into_iter().flatten().map(|acl| {
            tracing::info!(?acl, "a rule was deleted");
            DeleteAclsMatchingAcl::default()
                .with_resource_type(acl.kind as i8)
                .with_resource_name(text(acl.name.clone()))
                .with_pattern_type(acl.pattern as i8)
                .with_principal(text(acl.principal.clone()))
                .with_host(text(acl.host.clone()))
                .with_operation(acl.operation as i8)
                .with_permission_type(acl.permission as i8)
        });
        result.with_matching_acls(gone.collect())
    });
    DeleteAclsResponse::default().with_filter_results(results.collect())
}

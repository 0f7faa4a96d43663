//! `DescribeUserScramCredentials`, `AlterUserScramCredentials`: users over the wire (KIP-554). Passwords come salted and hashed.

use std::collections::BTreeMap;

use kafka_protocol::ResponseError;
use kafka_protocol::messages::alter_user_scram_credentials_response::AlterUserScramCredentialsResult;
use kafka_protocol::messages::describe_user_scram_credentials_response::{
    CredentialInfo, DescribeUserScramCredentialsResult,
};
use kafka_protocol::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
};

use super::Call;
use crate::access::AccessError;
use crate::access::acl::Operation;
use crate::access::book::{Book, USERS_MAX, check_credential, check_name};
use crate::access::scram::{Credential, Mechanism};
use crate::errors::{Answered, NONE, code, message, text, with};

/// What a server without users answers.
pub(super) fn no_store() -> (ResponseError, String) {
    with(ResponseError::SecurityDisabled)(&"this server keeps neither users nor rights")
}

pub(super) fn of_access(error: &AccessError) -> (ResponseError, String) {
    match error {
        AccessError::Refused(why) => (ResponseError::PolicyViolation, why.clone()),
        AccessError::Io(_) | AccessError::Book { .. } | AccessError::Overtaken => {
            with(ResponseError::KafkaStorageError)(error)
        }
    }
}

pub(super) fn describe(
    call: &Call<'_>,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    let response = DescribeUserScramCredentialsResponse::default();
    if let Err(error) = call.cluster(Operation::Describe) {
        return response.with_error_code(error.code()).with_error_message(Some(text("not allowed")));
    }
    let book = call.service.access.book();
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    match request.users.filter(|users| !users.is_empty()) {
        Some(users) => users.iter().for_each(|user| *asked.entry(user.name.to_string()).or_default() += 1),
        None => asked.extend(book.users.keys().map(|name| (name.clone(), 1))),
    }
    let results = asked.into_iter().map(|(name, times)| {
        let result = DescribeUserScramCredentialsResult::default().with_user(text(name.clone()));
        let found = match book.users.get(&name) {
            _ if times > 1 => Err((ResponseError::DuplicateResource, "asked for twice".to_string())),
            None => Err((ResponseError::ResourceNotFound, "there is no such user".to_string())),
            Some(credentials) => Ok(credentials),
        };
        let result = result.with_error_code(code(&found)).with_error_message(message(&found));
        let infos = found.into_iter().flatten().map(|(mechanism, credential)| {
            CredentialInfo::default()
                .with_mechanism(mechanism.number())
                .with_iterations(credential.iterations.cast_signed())
        });
        result.with_credential_infos(infos.collect())
    });
    response.with_results(results.collect())
}

/// One thing to be done to one user.
enum Change {
    Delete,
    Set(Credential),
}

/// What becomes of each user that a request names.
type Changes = BTreeMap<String, Vec<Answered<(Mechanism, Change)>>>;

fn read(request: &AlterUserScramCredentialsRequest) -> Changes {
    let refuse = |why: &str| (ResponseError::UnacceptableCredential, why.to_string());
    let known = |number: i8| {
        let unknown = || (ResponseError::UnsupportedSaslMechanism, "there is no such mechanism".to_string());
        Mechanism::of_number(number).ok_or_else(unknown)
    };
    let mut changes = Changes::new();
    for deletion in &request.deletions {
        let named = check_name(&deletion.name).map_err(refuse);
        let change = named.and_then(|_| known(deletion.mechanism)).map(|mechanism| (mechanism, Change::Delete));
        changes.entry(deletion.name.to_string()).or_default().push(change);
    }
    for set in &request.upsertions {
        let change = known(set.mechanism).and_then(|mechanism| {
            check_name(&set.name).map_err(refuse)?;
            if set.salted_password.len() != mechanism.hash_bytes() {
                return Err(refuse("the salted password doesn't fit the mechanism"));
            }
            let iterations = u32::try_from(set.iterations).unwrap_or(0);
            let credential = Credential::of_salted(mechanism, &set.salted_password, set.salt.to_vec(), iterations);
            check_credential(mechanism, &credential).map_err(refuse)?;
            Ok((mechanism, Change::Set(credential)))
        });
        changes.entry(set.name.to_string()).or_default().push(change);
    }
    // Of one user one thing at a time, by mechanism.
    for asked in changes.values_mut() {
        let mut seen: Vec<Mechanism> =
            asked.iter().filter_map(|change| change.as_ref().ok()).map(|change| change.0).collect();
        let all = seen.len();
        seen.sort_unstable();
        seen.dedup();
        if seen.len() < all {
            *asked = vec![Err((ResponseError::DuplicateResource, "changed twice in one request".to_string()))];
        }
    }
    changes
}

/// Does what is asked for one user, or nothing.
fn apply(book: &mut Book, name: &str, asked: &[Answered<(Mechanism, Change)>]) -> Answered<()> {
    if let Some(Err(refused)) = asked.iter().find(|change| change.is_err()) {
        return Err(refused.clone());
    }
    let mut credentials = book.users.get(name).cloned().unwrap_or_default();
    for (mechanism, change) in asked.iter().flatten() {
        match change {
            Change::Set(credential) => drop(credentials.insert(*mechanism, credential.clone())),
            Change::Delete if credentials.remove(mechanism).is_some() => {}
            Change::Delete => {
                return Err((ResponseError::ResourceNotFound, "there is no such credential".to_string()));
            }
        }
    }
    if credentials.is_empty() {
        book.users.remove(name);
    } else if book.users.len() >= USERS_MAX && !book.users.contains_key(name) {
        return Err((ResponseError::PolicyViolation, format!("there are {USERS_MAX} users already")));
    } else {
        book.users.insert(name.to_string(), credentials);
    }
    Ok(())
}

pub(super) fn alter(call: &Call<'_>, request: AlterUserScramCredentialsRequest) -> AlterUserScramCredentialsResponse {
    let changes = read(&request);
    let done = match (call.cluster(Operation::Alter), call.service.access.store()) {
        (Err(error), _) => Err((error, "not allowed".to_string())),
        (Ok(()), None) => Err(no_store()),
        (Ok(()), Some(store)) => {
            let changed = store.change(|book| {
                let results = changes.iter().map(|(name, asked)| apply(book, name, asked));
                Ok::<Vec<_>, AccessError>(results.collect())
            });
            changed.map_err(|e| of_access(&e))
        }
    };
    let results = changes.keys().enumerate().map(|(n, name)| {
        let done = match &done {
            Ok(done) => done[n].clone(),
            Err(all) => Err(all.clone()),
        };
        if done.is_ok() {
            tracing::info!(user = ?name, "credentials were changed");
        }
        AlterUserScramCredentialsResult::default()
            .with_user(text(name.clone()))
            .with_error_code(done.as_ref().err().map_or(NONE, |(error, _)| error.code()))
            .with_error_message(message(&done))
    });
    AlterUserScramCredentialsResponse::default().with_results(results.collect())
}

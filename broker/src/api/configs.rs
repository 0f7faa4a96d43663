//! Settings: `DescribeConfigs`, `AlterConfigs`, `IncrementalAlterConfigs`.
//!
//! The settings of a topic are kept by the log, which acts on those of cleanup, retention, segments, compaction and the largest batch. Of
//! the others only those values are taken that are true here: one, or, of those that bound from above what is done at once
//! anyway, any. Only names and values that Kafka knows are taken, so that a mistyped one is heard of. Those of the server can be read.

use std::collections::{BTreeMap, BTreeSet};

use cutwater_partition_log::TopicError;
use cutwater_partition_log::topic::check_name;
use kafka_protocol::ResponseError;
use kafka_protocol::messages::describe_configs_response::{
    DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use kafka_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, alter_configs_response,
    incremental_alter_configs_response,
};
use kafka_protocol::protocol::StrBytes;

use super::Call;
use super::members::plain;
use crate::access::acl::Operation;
use crate::errors::{Answered, code, message, of_topic, text, with};
use crate::service::NODE;

/// Kinds of resources.
const TOPIC: i8 = 2;
const BROKER: i8 = 4;
/// Where a value comes from.
const SET_FOR_TOPIC: i8 = 1;
const DEFAULT: i8 = 5;
/// Kinds of values, as clients show them.
const BOOLEAN: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;
const DOUBLE: i8 = 6;
const LIST: i8 = 7;

/// What a value may be.
#[derive(Clone, Copy)]
enum Kind {
    Number {
        from: i64,
    },
    /// One of 32 bits.
    Int {
        from: i32,
    },
    /// One of 32 bits from 0 to this.
    UpTo(i32),
    /// This value alone, and why; of this kind, as clients show it.
    Only(&'static str, &'static str, i8),
    Ratio,
    OneOf(&'static [&'static str]),
    AllOf(&'static [&'static str]),
}

/// Name, default and kind of every setting of a topic.
const SETTINGS: &[(&str, &str, Kind)] = &[
    ("cleanup.policy", "delete", Kind::AllOf(&["delete", "compact"])),
    ("compression.type", "producer", Kind::OneOf(&["producer"])),
    ("delete.retention.ms", "86400000", Kind::Number { from: 0 }),
    ("file.delete.delay.ms", "0", Kind::Only("0", "what is deleted goes with the janitor's next pass", LONG)),
    ("flush.messages", "1", Kind::Number { from: 1 }),
    ("flush.ms", "0", Kind::Number { from: 0 }),
    ("index.interval.bytes", "4096", Kind::Only("4096", "all topics have indexes of one density", INT)),
    ("max.compaction.lag.ms", "9223372036854775807", Kind::Number { from: 1 }),
    ("max.message.bytes", "8388608", Kind::UpTo(8_388_608)),
    ("message.timestamp.type", "CreateTime", Kind::OneOf(&["CreateTime"])),
    ("min.cleanable.dirty.ratio", "0.5", Kind::Ratio),
    ("min.compaction.lag.ms", "0", Kind::Number { from: 0 }),
    ("min.insync.replicas", "1", Kind::Only("1", "there is one replica, and what is acknowledged is on its disk", INT)),
    ("retention.bytes", "-1", Kind::Number { from: -1 }),
    ("retention.ms", "-1", Kind::Number { from: -1 }),
    ("segment.bytes", "268435456", Kind::Int { from: 14 }),
    ("segment.ms", "9223372036854775807", Kind::Number { from: 1 }),
    ("unclean.leader.election.enable", "false", Kind::Only("false", "nobody else could be elected", BOOLEAN)),
];

/// Checks one setting; `None` where a list is extended or a value removed.
pub(super) fn check(name: &str, value: &str) -> Result<(), (ResponseError, String)> {
    let known = SETTINGS.iter().find(|(known, ..)| *known == name);
    let invalid = |why: String| (ResponseError::InvalidConfig, why);
    let (_, _, kind) = known.ok_or_else(|| invalid(format!("there is no setting \"{name}\"")))?;
    let fits = match kind {
        Kind::Number { from } => value.parse::<i64>().is_ok_and(|number| number >= *from),
        Kind::Int { from } => value.parse::<i32>().is_ok_and(|number| number >= *from),
        Kind::UpTo(most) => value.parse::<i32>().is_ok_and(|number| (0..=*most).contains(&number)),
        Kind::Only(only, ..) if value == *only => true,
        Kind::Only(only, why, _) => {
            return Err(invalid(format!("\"{name}\" is {only} here, not \"{value}\": {why}")));
        }
        Kind::Ratio => value.parse::<f64>().is_ok_and(|ratio| (0.0..=1.0).contains(&ratio)),
        Kind::OneOf(words) => words.contains(&value),
        Kind::AllOf(words) => value.split(',').all(|word| words.contains(&word.trim())),
    };
    if fits { Ok(()) } else { Err(invalid(format!("\"{value}\" is no value of \"{name}\" that this server can have"))) }
}

pub(super) fn describe(call: &Call<'_>, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let results = request.resources.into_iter().map(|asked| {
        let keys = asked.configuration_keys.as_ref();
        let wanted =
            |name: &str| keys.is_none_or(|keys| keys.is_empty() || keys.iter().any(|key| key.as_str() == name));
        let found = match allowed(call, Operation::DescribeConfigs, asked.resource_type, &asked.resource_name)
            .map(|()| asked.resource_type)
        {
            Err(denied) => Err(denied),
            Ok(TOPIC) if check_name(&asked.resource_name).is_err() => {
                Err((ResponseError::InvalidTopicException, "that is no name of a topic".to_string()))
            }
            Ok(TOPIC) if call.service.log.topic(&asked.resource_name).is_none() => {
                Err((ResponseError::UnknownTopicOrPartition, "there is no such topic".to_string()))
            }
            Ok(TOPIC) => Ok(of_topic_settings(call, &asked.resource_name, request.include_synonyms)),
            Ok(BROKER) if asked.resource_name.is_empty() || *asked.resource_name == NODE.0.to_string() => {
                Ok(of_server(call))
            }
            Ok(BROKER) => Err((ResponseError::InvalidRequest, "there is no such server".to_string())),
            Ok(_) => Err((ResponseError::InvalidRequest, "only topics and servers have settings".to_string())),
        };
        let (error, why) = (code(&found), message(&found));
        let configs = found.unwrap_or_default().into_iter().filter(|config| wanted(&config.name));
        let configs = configs.map(|config| match call.version() {
            3.. => config.with_documentation(None),
            _ => config.with_config_type(0),
        });
        DescribeConfigsResult::default()
            .with_error_code(error)
            .with_error_message(why)
            .with_resource_type(asked.resource_type)
            .with_configs(configs.collect())
            .with_resource_name(asked.resource_name)
    });
    DescribeConfigsResponse::default().with_results(results.collect())
}

/// Whether the caller may do that to the settings of a topic or of the server.
fn allowed(call: &Call<'_>, operation: Operation, kind: i8, name: &str) -> Answered<()> {
    let allowed = match kind {
        TOPIC => call.topic(operation, name),
        _ => call.cluster(operation),
    };
    allowed.map_err(|error| (error, "these settings aren't yours".to_string()))
}

fn one(name: &str, value: String, source: i8, kind: i8) -> DescribeConfigsResourceResult {
    DescribeConfigsResourceResult::default()
        .with_name(text(name))
        .with_value(Some(text(value)))
        .with_config_source(source)
        .with_config_type(kind)
}

/// What a setting is where the topic doesn't say: some come with how the log was opened.
fn default_of(call: &Call<'_>, name: &str, default: &str) -> String {
    let limits = call.service.log.limits();
    match name {
        "segment.bytes" => limits.segment_bytes.to_string(),
        "index.interval.bytes" => limits.index_interval_bytes.to_string(),
        "max.message.bytes" => limits.batch_bytes_max.to_string(),
        _ => default.to_string(),
    }
}

/// Every setting of a topic with its value and where that comes from.
pub(super) fn effective(call: &Call<'_>, topic: &str) -> Vec<(&'static str, String, i8)> {
    let set = call.service.log.topic_settings(topic);
    let one = |(name, default, _): &(&'static str, &str, Kind)| match set.get(*name) {
        Some(value) => (*name, value.clone(), SET_FOR_TOPIC),
        None => (*name, default_of(call, name, default), DEFAULT),
    };
    SETTINGS.iter().map(one).collect()
}

fn of_topic_settings(call: &Call<'_>, topic: &str, synonyms: bool) -> Vec<DescribeConfigsResourceResult> {
    let all = SETTINGS.iter().zip(effective(call, topic)).map(|((name, default, kind), (_, value, source))| {
        let kind = match kind {
            Kind::Number { .. } => LONG,
            Kind::Int { .. } | Kind::UpTo(_) => INT,
            Kind::Only(_, _, shown) => *shown,
            Kind::Ratio => DOUBLE,
            Kind::OneOf(_) => STRING,
            Kind::AllOf(_) => LIST,
        };
        let synonym = |value: String, source: i8| {
            DescribeConfigsSynonym::default().with_name(text(*name)).with_value(Some(text(value))).with_source(source)
        };
        let own = (source == SET_FOR_TOPIC).then(|| synonym(value.clone(), SET_FOR_TOPIC));
        let also = own.into_iter().chain([synonym(default_of(call, name, default), DEFAULT)]);
        let config = one(name, value, source, kind);
        if synonyms { config.with_synonyms(also.collect()) } else { config }
    });
    all.collect()
}

fn of_server(call: &Call<'_>) -> Vec<DescribeConfigsResourceResult> {
    let options = &call.service.options;
    let limits = call.service.log.limits();
    [
        ("auto.create.topics.enable", options.auto_create_topics.to_string(), BOOLEAN),
        ("broker.id", NODE.0.to_string(), INT),
        ("default.replication.factor", "1".to_string(), INT),
        ("log.cleaner.dedupe.buffer.size", limits.compaction_map_bytes.to_string(), LONG),
        ("log.retention.check.interval.ms", limits.janitor_every.as_millis().to_string(), LONG),
        ("group.initial.rebalance.delay.ms", options.group_initial_delay.as_millis().to_string(), INT),
        ("message.max.bytes", limits.batch_bytes_max.to_string(), INT),
        ("offsets.retention.minutes", (options.offsets_retention.as_secs() / 60).to_string(), INT),
        ("num.partitions", options.default_partitions.to_string(), INT),
        ("transaction.max.timeout.ms", options.limits.transaction_timeout.as_millis().to_string(), INT),
    ]
    .into_iter()
    .map(|(name, value, kind)| one(name, value, DEFAULT, kind).with_read_only(true))
    .collect()
}

/// How one setting changes.
enum Change {
    Set(String),
    Remove,
    Append(String),
    Subtract(String),
}

fn change(
    call: &Call<'_>,
    kind: i8,
    topic: &StrBytes,
    anew: bool,
    changes: Vec<(String, Change)>,
    only_look: bool,
) -> Answered<()> {
    allowed(call, Operation::AlterConfigs, kind, topic)?;
    if kind != TOPIC {
        return Err((ResponseError::InvalidRequest, "the server's settings are those of its command line".to_string()));
    }
    if topic.is_empty() {
        return Err((ResponseError::InvalidRequest, "this topic has no name".to_string()));
    }
    let names: BTreeSet<&String> = changes.iter().map(|(name, _)| name).collect();
    if names.len() < changes.len() {
        return Err((ResponseError::InvalidRequest, "one setting is named twice".to_string()));
    }
    let log = &call.service.log;
    let unknown = || with(ResponseError::UnknownTopicOrPartition)(&"there is no such topic");
    log.topic(topic).ok_or_else(unknown)?;
    let apply = |settings: &mut BTreeMap<String, String>| {
        if anew {
            settings.clear();
        }
        for (name, change) in &changes {
            let default = SETTINGS.iter().find(|(known, ..)| known == name).map_or("", |(_, default, _)| *default);
            let old = settings.get(name).cloned().unwrap_or_else(|| default.to_string());
            let words = || old.split(',').map(str::trim).filter(|word| !word.is_empty());
            let new = match change {
                Change::Set(value) => value.clone(),
                Change::Remove => {
                    settings.remove(name);
                    continue;
                }
                Change::Append(more) if words().any(|word| word == more) => old.clone(),
                Change::Append(more) => words().chain([more.as_str()]).collect::<Vec<_>>().join(","),
                Change::Subtract(less) => words().filter(|word| word != less).collect::<Vec<_>>().join(","),
            };
            settings.insert(name.clone(), new);
        }
    };
    let of_list = |name: &str| SETTINGS.iter().any(|(known, _, kind)| *known == name && matches!(kind, Kind::AllOf(_)));
    for (name, change) in &changes {
        if matches!(change, Change::Append(_) | Change::Subtract(_)) && !of_list(name) {
            return Err((ResponseError::InvalidConfig, format!("\"{name}\" is no list")));
        }
    }
    let mut settings = log.topic_settings(topic);
    apply(&mut settings);
    // What an older version took and isn't touched now stays as it is.
    let touched = settings.iter().filter(|(name, _)| names.contains(name));
    touched.into_iter().try_for_each(|(name, value)| check(name, value))?;
    if only_look {
        return Ok(());
    }
    log.change_topic_settings(topic, apply).map_err(|e: TopicError| with(of_topic(&e))(&e))
}

fn valueless(name: &str) -> (ResponseError, String) {
    (ResponseError::InvalidRequest, format!("\"{name}\" is to be set, and there is no value"))
}

/// What is named more than once in a request: which change is meant can't be known.
fn several<'a>(named: impl Iterator<Item = (i8, &'a StrBytes)>) -> BTreeSet<(i8, StrBytes)> {
    let mut seen = BTreeSet::new();
    named.filter(|named| !seen.insert(*named)).map(|(kind, name)| (kind, name.clone())).collect()
}

fn once(several: &BTreeSet<(i8, StrBytes)>, kind: i8, name: &StrBytes) -> Answered<()> {
    match several.contains(&(kind, name.clone())) {
        true => Err((ResponseError::InvalidRequest, "this resource is named twice".to_string())),
        false => Ok(()),
    }
}

pub(super) fn alter(call: &Call<'_>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let named = several(request.resources.iter().map(|resource| (resource.resource_type, &resource.resource_name)));
    let responses = request.resources.into_iter().map(|resource| {
        let changes = resource.configs.iter().map(|config| {
            let value = plain(&config.value).ok_or_else(|| valueless(&config.name))?;
            Ok((config.name.to_string(), Change::Set(value.to_string())))
        });
        let changes: Answered<Vec<(String, Change)>> = changes.collect();
        let (kind, only_look) = (resource.resource_type, request.validate_only);
        let single = once(&named, kind, &resource.resource_name);
        let done = single.and(changes);
        let done = done.and_then(|changes| change(call, kind, &resource.resource_name, true, changes, only_look));
        alter_configs_response::AlterConfigsResourceResponse::default()
            .with_error_code(code(&done))
            .with_error_message(message(&done))
            .with_resource_type(resource.resource_type)
            .with_resource_name(resource.resource_name)
    });
    AlterConfigsResponse::default().with_responses(responses.collect())
}

pub(super) fn alter_some(call: &Call<'_>, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse {
    let named = several(request.resources.iter().map(|resource| (resource.resource_type, &resource.resource_name)));
    let responses = request.resources.into_iter().map(|resource| {
        let changes: Answered<Vec<(String, Change)>> = resource
            .configs
            .iter()
            .map(|config| {
                let value = plain(&config.value);
                if value.is_none() && config.config_operation != 1 {
                    return Err(valueless(&config.name));
                }
                let value = value.unwrap_or_default().to_string();
                let change = match config.config_operation {
                    0 => Change::Set(value),
                    1 => Change::Remove,
                    2 => Change::Append(value),
                    3 => Change::Subtract(value),
                    other => return Err((ResponseError::InvalidRequest, format!("there is no operation {other}"))),
                };
                Ok((config.name.to_string(), change))
            })
            .collect();
        let (kind, only_look) = (resource.resource_type, request.validate_only);
        let done = once(&named, kind, &resource.resource_name).and(changes);
        let done = done.and_then(|changes| change(call, kind, &resource.resource_name, false, changes, only_look));
        incremental_alter_configs_response::AlterConfigsResourceResponse::default()
            .with_error_code(code(&done))
            .with_error_message(message(&done))
            .with_resource_type(kind)
            .with_resource_name(resource.resource_name)
    });
    IncrementalAlterConfigsResponse::default().with_responses(responses.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_values_and_what_is_no_setting_is_refused() {
        for (name, default, _) in SETTINGS {
            assert_eq!(check(name, default), Ok(()), "{name}");
        }
        assert_eq!(check("cleanup.policy", "compact,delete"), Ok(()));
        for (name, value) in [("cleanup.policy", "shred"), ("retention.ms", "-2"), ("retention.mz", "1")] {
            assert!(check(name, value).is_err(), "{name}={value}");
        }
    }

    #[test]
    fn a_value_that_does_not_hold_here_is_refused_with_the_reason_and_one_that_holds_is_taken() {
        for (name, value, reason) in [
            ("min.insync.replicas", "2", "one replica"),
            ("file.delete.delay.ms", "60000", "janitor"),
            ("index.interval.bytes", "1024", "density"),
            ("unclean.leader.election.enable", "true", "elected"),
            ("max.message.bytes", "8388609", "max.message.bytes"),
            ("compression.type", "zstd", "compression.type"),
        ] {
            let (error, why) = check(name, value).expect_err("it doesn't hold");
            assert!(error == ResponseError::InvalidConfig && why.contains(reason), "{why}");
        }
        for (name, value) in [("flush.messages", "10000"), ("flush.ms", "1000"), ("max.message.bytes", "1048588")] {
            assert_eq!(check(name, value), Ok(()), "{name}: sooner than that, or no more");
        }
    }
}

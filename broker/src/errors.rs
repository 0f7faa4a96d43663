//! What the log says, in Kafka's error codes.

use kafka_protocol::ResponseError;
use kafka_protocol::protocol::StrBytes;

use cutwater_partition_log::batch::BatchError;
use cutwater_partition_log::{AppendError, Down, FetchError, SequenceError, TopicError};

/// No error.
pub(crate) const NONE: i16 = 0;

/// A code, and the sentence that goes with it where the answer has room for one.
pub(crate) type Answered<T> = Result<T, (ResponseError, String)>;

/// Text for a field of a response.
pub(crate) fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

/// The code of a result.
pub(crate) fn code<T>(result: &Answered<T>) -> i16 {
    result.as_ref().err().map_or(NONE, |(error, _)| error.code())
}

/// The sentence of a result.
pub(crate) fn message<T>(result: &Answered<T>) -> Option<StrBytes> {
    result.as_ref().err().map(|(_, message)| text(message.clone()))
}

/// An error with what the log said about it.
pub(crate) fn with(error: ResponseError) -> impl FnOnce(&dyn std::fmt::Display) -> (ResponseError, String) {
    move |said| (error, said.to_string())
}

/// The log takes no requests, any more or while its disk is full: to clients as a failed disk, which they retry elsewhere or later, and
/// take nothing for written.
pub(crate) fn of_down(_: &Down) -> ResponseError {
    ResponseError::KafkaStorageError
}

/// The same to clients that ask a coordinator: whatever became of their request, they look for the coordinator anew and ask
/// again, as Kafka's are told to. A storage error would end them: librdkafka gives a transaction's end up with it.
pub(crate) const NO_LOG: ResponseError = ResponseError::NotCoordinator;

pub(crate) fn of_append(error: &AppendError) -> ResponseError {
    match error {
        AppendError::UnknownPartition { .. } => ResponseError::UnknownTopicOrPartition,
        AppendError::Batch { source, .. } => of_batch(source),
        AppendError::Sequence {
            source: SequenceError::OldEpoch { .. } | SequenceError::EpochToCome { .. }, ..
        } => ResponseError::InvalidProducerEpoch,
        AppendError::Sequence { source: SequenceError::OutOfOrder { .. }, .. } => {
            ResponseError::OutOfOrderSequenceNumber
        }
        AppendError::OtherProducer { .. } => ResponseError::InvalidProducerIdMapping,
        AppendError::Fenced(_) => ResponseError::InvalidProducerEpoch,
        AppendError::NoTransaction { .. } | AppendError::InTransaction { .. } => ResponseError::InvalidTxnState,
        AppendError::TooManyPartitions { .. } => ResponseError::PolicyViolation,
        AppendError::Down(down) => of_down(down),
        // Accepted, and not known to be durable: clients ask again and take the batch for perhaps written.
        AppendError::OutcomeUnknown(_) => ResponseError::RequestTimedOut,
    }
}

fn of_batch(error: &BatchError) -> ResponseError {
    match error {
        BatchError::TooLarge { .. } => ResponseError::MessageTooLarge,
        BatchError::Crc { .. } | BatchError::Short { .. } => ResponseError::CorruptMessage,
        // There were formats 0 and 1; the others are no batch at all.
        BatchError::Magic { found } if !(0..2).contains(found) => ResponseError::CorruptMessage,
        BatchError::Codec { .. } => ResponseError::UnsupportedCompressionType,
        _ => ResponseError::InvalidRecord,
    }
}

pub(crate) fn of_fetch(error: &FetchError) -> ResponseError {
    match error {
        FetchError::UnknownPartition { .. } => ResponseError::UnknownTopicOrPartition,
        FetchError::OutOfRange { .. } => ResponseError::OffsetOutOfRange,
        FetchError::Damaged { .. } => ResponseError::CorruptMessage,
        FetchError::Io { .. } => ResponseError::KafkaStorageError,
        FetchError::Down(down) => of_down(down),
        FetchError::OutcomeUnknown(_) => ResponseError::KafkaStorageError,
    }
}

pub(crate) fn of_topic(error: &TopicError) -> ResponseError {
    match error {
        TopicError::InvalidName(_) => ResponseError::InvalidTopicException,
        TopicError::Exists { .. } | TopicError::OtherPartitions { .. } => ResponseError::TopicAlreadyExists,
        TopicError::Unknown { .. } => ResponseError::UnknownTopicOrPartition,
        TopicError::NoPartitions => ResponseError::InvalidPartitions,
        TopicError::Setting { .. } => ResponseError::InvalidConfig,
        TopicError::TooMany { .. } => ResponseError::PolicyViolation,
        TopicError::Down(down) => of_down(down),
        TopicError::OutcomeUnknown(_) => ResponseError::KafkaStorageError,
    }
}

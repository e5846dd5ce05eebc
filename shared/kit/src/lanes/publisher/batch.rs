//! One atomic batch: cut out of what was read, sent, and its answer read.
//!
//! The broker stores all messages of a batch or none, and only if the stream's last number is the one expected. That
//! check, not the lease, is what makes two publishers at once harmless.

use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{HeaderMap, Request, header};

use super::super::{Error, OutboxMessage, Runtime, stream};
use crate::crash_point;

const BATCH_ID: &str = "Nats-Batch-Id";
const BATCH_SEQUENCE: &str = "Nats-Batch-Sequence";
const BATCH_COMMIT: &str = "Nats-Batch-Commit";

/// What the broker said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    /// Stored under the expected numbers.
    Stored,
    /// Nothing stored: the stream does not end where we thought.
    Rejected,
}

/// How many of the first `rows` go into one batch: at most `count_max`, and no more bytes than `bytes_max` unless a
/// single message is larger.
pub(super) fn cut(rows: &[OutboxMessage], count_max: usize, bytes_max: usize) -> usize {
    let mut bytes = 0;
    let fitting = rows.iter().take(count_max).take_while(|row| {
        bytes += row.payload.len();
        bytes <= bytes_max
    });
    fitting.count().max(1).min(rows.len())
}

/// Publishes `rows`, which follow one another and follow `rows[0].seq - 1` in the stream.
pub(super) async fn publish(
    runtime: &Runtime,
    stream: &str,
    subject: &str,
    rows: &[OutboxMessage],
) -> Result<Answer, Error> {
    let sending = send(runtime, subject, rows);
    let message = tokio::time::timeout(runtime.settings.request_timeout(), sending)
        .await
        .map_err(|elapsed| Error::nats("publish a batch", elapsed))??;
    crash_point!("publisher.after_publish");
    let response: Response<PublishAck> =
        serde_json::from_slice(&message.payload).map_err(|error| Error::nats("read the broker's answer", error))?;
    match response {
        Response::Ok(ack) => confirm(&ack, stream, rows),
        Response::Err { error } if is_wrong_last_sequence(error.error_code()) => Ok(Answer::Rejected),
        Response::Err { error } => Err(Error::nats("publish a batch", error)),
    }
}

/// The second code is what a cluster answers when it cannot name the number.
fn is_wrong_last_sequence(code: ErrorCode) -> bool {
    code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE || code == ErrorCode::STREAM_WRONG_LAST_SEQUENCE_CONSTANT
}

/// An answer that names other numbers than ours was not given to this batch.
fn confirm(ack: &PublishAck, stream: &str, rows: &[OutboxMessage]) -> Result<Answer, Error> {
    let last = rows.last().map_or(0, |row| row.seq);
    let count = ack.batch_size.and_then(|count| usize::try_from(count).ok());
    if ack.stream == stream && ack.sequence == last && count == Some(rows.len()) {
        return Ok(Answer::Stored);
    }
    let words = format!("expected stream {stream}, number {last}, {} messages, got {ack:?}", rows.len());
    Err(Error::nats("publish a batch", words))
}

/// All messages but the last go out without asking for an answer; the last one commits the batch.
async fn send(runtime: &Runtime, subject: &str, rows: &[OutboxMessage]) -> Result<async_nats::Message, Error> {
    let id = format!("{:016x}", rand::random::<u64>());
    let Some((last, before)) = rows.split_last() else {
        return Err(Error::nats("publish a batch", "the batch is empty"));
    };
    for (index, row) in before.iter().enumerate() {
        let headers = headers(&id, index, row);
        let sent = runtime.nats.publish_with_headers(subject.to_owned(), headers, row.payload.clone()).await;
        sent.map_err(|error| Error::nats("publish a batch", error))?;
    }
    let mut headers = headers(&id, before.len(), last);
    headers.insert(BATCH_COMMIT, "1");
    let request = Request::new().headers(headers).payload(last.payload.clone());
    let answer = runtime.nats.send_request(subject.to_owned(), request).await;
    answer.map_err(|error| Error::nats("publish a batch", error))
}

fn headers(batch: &str, index: usize, row: &OutboxMessage) -> HeaderMap {
    let mut headers = stream::headers(row.event_id, row.schema);
    headers.insert(BATCH_ID, batch);
    headers.insert(BATCH_SEQUENCE, (index + 1).to_string());
    if index == 0 {
        headers.insert(header::NATS_EXPECTED_LAST_SEQUENCE, (row.seq - 1).to_string());
    }
    headers
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use time::OffsetDateTime;
    use uuid::Uuid;

    use super::*;

    fn rows(sizes: &[usize]) -> Vec<OutboxMessage> {
        sizes
            .iter()
            .zip(1..)
            .map(|(size, seq)| OutboxMessage {
                seq,
                event_id: Uuid::from_u128(u128::from(seq)),
                schema: "s",
                payload: Bytes::from(vec![0; *size]),
                created_at: OffsetDateTime::UNIX_EPOCH,
            })
            .collect()
    }

    #[test]
    fn a_batch_is_bounded_in_messages_and_bytes_but_never_empty() {
        assert_eq!(cut(&rows(&[1, 1, 1]), 2, 100), 2);
        assert_eq!(cut(&rows(&[1, 1, 1]), 5, 100), 3);
        assert_eq!(cut(&rows(&[60, 40, 1]), 5, 100), 2);
        assert_eq!(cut(&rows(&[500, 1]), 5, 100), 1);
        assert_eq!(cut(&[], 5, 100), 0);
    }

    #[test]
    fn only_the_first_message_carries_the_chain_and_none_a_message_id() {
        let rows = rows(&[1, 1]);
        let (first, second) = (headers("b", 0, &rows[0]), headers("b", 1, &rows[1]));
        let expected = |headers: &HeaderMap| headers.get(header::NATS_EXPECTED_LAST_SEQUENCE).map(ToString::to_string);
        assert_eq!(expected(&first).as_deref(), Some("0"));
        assert_eq!(expected(&second), None);
        assert!(first.get(header::NATS_MESSAGE_ID).is_none() && second.get(header::NATS_MESSAGE_ID).is_none());
    }

    #[test]
    fn an_answer_to_another_batch_confirms_nothing() {
        let rows = rows(&[1, 1]);
        let ack = PublishAck { stream: "S".to_owned(), sequence: 2, batch_size: Some(2), ..PublishAck::default() };
        assert_eq!(confirm(&ack, "S", &rows).expect("ours"), Answer::Stored);
        assert!(confirm(&PublishAck { sequence: 3, ..ack.clone() }, "S", &rows).is_err());
        assert!(confirm(&PublishAck { batch_size: Some(1), ..ack.clone() }, "S", &rows).is_err());
        assert!(confirm(&ack, "T", &rows).is_err());
    }
}

//! Pull requests on an ephemeral consumer. One request is out at a time, always with an expiry and never with a
//! heartbeat; the broker keeps no truth about what was read.

use std::time::Duration;

use async_nats::jetstream;
use async_nats::jetstream::consumer::pull::{BatchConfig, Config};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer, ReplayPolicy};
use async_nats::jetstream::stream::Stream;
use async_nats::{Message, StatusCode, Subject, Subscriber};
use futures::StreamExt;
use likewise_domain::lane::Offset;
use tokio::time::{Instant, sleep_until};

use super::super::stream::{Found, SCHEMA, found_event};
use super::super::{Error, Lane, LaneMessage, Runtime};

/// The broker forgets a consumer that asks for nothing this long, which is longer than any pull request waits.
const INACTIVE: Duration = Duration::from_secs(120);
/// How long after its expiry a request may stay unanswered before it counts as lost.
const GRACE: Duration = Duration::from_secs(5);

const CREATE: &str = "create a consumer on the stream";

/// One thing a pull brought.
#[derive(Debug)]
pub(super) enum Pulled {
    /// A message, and how many more the broker had for us when it sent it.
    Message(LaneMessage, u64),
    /// The request is over; another may be sent.
    Ended,
}

/// A consumer on the broker and the request that is out.
pub(super) struct Puller {
    consumer: PullConsumer,
    jetstream: jetstream::Context,
    subscriber: Subscriber,
    inbox: Subject,
    stream: String,
    lane: Lane,
    epoch: u32,
    expires: Duration,
    request: Option<Request>,
}

struct Request {
    asked: usize,
    left: usize,
    lost_at: Instant,
}

impl Puller {
    /// Creates a consumer that starts at `from`.
    pub(super) async fn create(
        runtime: &Runtime,
        jetstream: &jetstream::Context,
        stream: &Stream,
        lane: Lane,
        from: Offset,
        description: String,
    ) -> Result<Self, Error> {
        let config = Config {
            description: Some(description),
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.seq },
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            inactive_threshold: INACTIVE,
            num_replicas: 1,
            memory_storage: true,
            ..Config::default()
        };
        let consumer: PullConsumer =
            stream.create_consumer(config).await.map_err(|error| Error::nats(CREATE, error))?;
        let inbox = Subject::from(runtime.nats.new_inbox());
        let subscriber = runtime.nats.subscribe(inbox.clone()).await.map_err(|error| Error::nats(CREATE, error))?;
        Ok(Self {
            consumer,
            jetstream: jetstream.clone(),
            subscriber,
            inbox,
            stream: stream.cached_info().config.name.clone(),
            lane,
            epoch: from.epoch,
            expires: Duration::from_millis(runtime.settings.pull_expires_ms),
            request: None,
        })
    }

    pub(super) const fn is_idle(&self) -> bool {
        self.request.is_none()
    }

    /// Sends a request for at most so many messages and bytes.
    pub(super) async fn request(&mut self, messages: usize, bytes: usize) -> Result<(), Error> {
        let batch =
            BatchConfig { batch: messages, max_bytes: bytes, expires: Some(self.expires), ..BatchConfig::default() };
        let sent = self.consumer.request_batch(batch, self.inbox.clone()).await;
        sent.map_err(|error| Error::nats("ask the stream for messages", error))?;
        self.request =
            Some(Request { asked: messages, left: messages, lost_at: Instant::now() + self.expires + GRACE });
        Ok(())
    }

    /// Waits for what the request brings. Cancelling loses nothing.
    pub(super) async fn next(&mut self) -> Result<Pulled, Error> {
        let Some(request) = &self.request else {
            return std::future::pending().await;
        };
        if request.left == 0 {
            self.request = None;
            return Ok(Pulled::Ended);
        }
        let received = tokio::select! {
            biased;
            received = self.subscriber.next() => received,
            () = sleep_until(request.lost_at) => {
                return Err(Error::nats("wait for messages", "the pull request was not answered"));
            }
        };
        let message = received.ok_or_else(|| Error::nats("wait for messages", "the subscription ended"))?;
        match message.status {
            None | Some(StatusCode::OK) => self.message(message),
            Some(status) => self.ended(status, message.description.as_deref().unwrap_or_default()),
        }
    }

    fn message(&mut self, message: Message) -> Result<Pulled, Error> {
        if let Some(request) = &mut self.request {
            request.left -= 1;
        }
        let message = jetstream::Message { message, context: self.jetstream.clone() };
        let info = message.info().map_err(|error| Error::nats("read where a message stands", error))?;
        let Found::Event(event_id) = found_event(message.headers.as_ref()) else {
            return Err(Error::ForeignMessage { stream: self.stream.clone(), seq: info.stream_sequence });
        };
        let schema = message.headers.as_ref().and_then(|headers| headers.get(SCHEMA));
        let pulled = LaneMessage {
            lane: self.lane,
            offset: Offset { epoch: self.epoch, seq: info.stream_sequence },
            event_id,
            schema: schema.map_or_else(String::new, ToString::to_string),
            published_at: info.published,
            payload: message.payload.clone(),
        };
        Ok(Pulled::Message(pulled, info.pending))
    }

    /// A status ends the request. Those that only say that it is over are not failures.
    fn ended(&mut self, status: StatusCode, description: &str) -> Result<Pulled, Error> {
        let nothing = self.request.take().is_some_and(|request| request.left == request.asked);
        match status {
            StatusCode::TIMEOUT | StatusCode::NOT_FOUND => Ok(Pulled::Ended),
            StatusCode::REQUEST_TERMINATED if description.eq_ignore_ascii_case("batch completed") => Ok(Pulled::Ended),
            StatusCode::REQUEST_TERMINATED if is_too_large(description) && !nothing => Ok(Pulled::Ended),
            StatusCode::REQUEST_TERMINATED if is_too_large(description) => Err(Error::nats(
                "wait for messages",
                "one message is larger than lanes.consume_bytes: raise that setting",
            )),
            _ => Err(Error::nats("wait for messages", format!("the broker ended the request: {status} {description}"))),
        }
    }

    /// Removes the consumer from the broker; otherwise it goes by itself.
    pub(super) async fn remove(self, stream: &Stream) {
        drop(stream.delete_consumer(&self.consumer.cached_info().name).await);
    }
}

fn is_too_large(description: &str) -> bool {
    description.eq_ignore_ascii_case("message size exceeds maxbytes")
}

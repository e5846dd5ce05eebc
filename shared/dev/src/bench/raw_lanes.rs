//! The broker alone: the messages of lanes on streams of the same settings, without outbox, evidence or checkpoint.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use async_nats::jetstream::consumer::pull::Config;
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy, PullConsumer};
use async_nats::jetstream::{self, Message};
use async_nats::{Client, HeaderMap, Request};
use futures::StreamExt as _;
use likewise_devstack::TestConfig;
use likewise_kit::lanes::{Lane, stream_name};
use serde_json::Value;
use uuid::Uuid;

use super::load::rate;

/// As the publisher's and the consumer's defaults.
const PUBLISH: usize = 500;
const PULL: usize = 2_000;
/// Longest wait for a pull.
const EXPIRES: Duration = Duration::from_secs(5);

/// Connection and names.
pub(crate) struct RawLanes {
    client: Client,
    prefix: String,
    lanes: u16,
}

/// Messages of each lane.
pub(crate) type Taken = Vec<Vec<Message>>;

impl RawLanes {
    /// Beside the product's own streams.
    pub(crate) async fn open(config: &TestConfig, lanes: u16) -> Result<Self> {
        let client = async_nats::connect(&config.address.nats).await.context("connecting to NATS")?;
        Ok(Self { client, prefix: config.stream_prefix.clone(), lanes })
    }

    /// Name of a lane's stream.
    fn stream(&self, shard: u16) -> String {
        stream_name(&self.prefix, &Lane { class: "rel", shard }, 0)
    }

    /// Pulls the last messages of all lanes together, as many as are wanted, and answers how fast.
    pub(crate) async fn pull(&self, wanted: u64) -> Result<(f64, Taken)> {
        let jetstream = jetstream::new(self.client.clone());
        let mut consumers = Vec::new();
        for shard in 0..self.lanes {
            let mut stream = jetstream.get_stream(self.stream(shard)).await?;
            let last = stream.info().await?.state.last_sequence;
            let first = last + 1 - wanted / u64::from(self.lanes);
            let config = Config {
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: first },
                ack_policy: AckPolicy::None,
                memory_storage: true,
                ..Config::default()
            };
            consumers.push((stream.create_consumer(config).await?, first, last));
        }
        let begin = Instant::now();
        let each = consumers.iter().map(|(consumer, first, last)| drain(consumer, *first, *last));
        let taken: Taken = futures::future::try_join_all(each).await?;
        Ok((rate(taken.iter().map(Vec::len).sum(), begin.elapsed()), taken))
    }

    /// Publishes the messages to streams of the same settings, each lane at once, and answers how fast.
    pub(crate) async fn publish(&self, taken: &Taken) -> Result<f64> {
        let jetstream = jetstream::new(self.client.clone());
        let mut streams = Vec::new();
        for shard in 0..self.lanes {
            let mut like = jetstream.get_stream(self.stream(shard)).await?.info().await?.config.clone();
            like.name = format!("RAW_{}_{shard}", Uuid::new_v4().simple());
            like.subjects = vec![like.name.to_lowercase()];
            like.first_sequence = None;
            // These are of one round only.
            (like.deny_delete, like.deny_purge) = (false, false);
            jetstream.create_stream(like.clone()).await?;
            streams.push((like.name, like.subjects[0].clone()));
        }
        let begin = Instant::now();
        let each = streams.iter().zip(taken).map(|((_, subject), messages)| self.send(subject, messages));
        futures::future::try_join_all(each).await?;
        let per_s = rate(taken.iter().map(Vec::len).sum(), begin.elapsed());
        for (name, _) in &streams {
            jetstream.delete_stream(name).await?;
        }
        Ok(per_s)
    }

    async fn send(&self, subject: &str, messages: &[Message]) -> Result<()> {
        let mut last = 0;
        for batch in messages.chunks(PUBLISH) {
            let id = Uuid::new_v4().simple().to_string();
            let mut answer = None;
            for (index, message) in batch.iter().enumerate() {
                let mut headers = own_headers(message);
                headers.insert("Nats-Batch-Id", id.as_str());
                headers.insert("Nats-Batch-Sequence", (index + 1).to_string());
                if index == 0 {
                    headers.insert("Nats-Expected-Last-Sequence", last.to_string());
                }
                if index + 1 < batch.len() {
                    self.client.publish_with_headers(subject.to_owned(), headers, message.payload.clone()).await?;
                } else {
                    headers.insert("Nats-Batch-Commit", "1");
                    let request = Request::new().headers(headers).payload(message.payload.clone());
                    answer = Some(self.client.send_request(subject.to_owned(), request).await?);
                }
            }
            last += batch.len();
            let answer: Value = serde_json::from_slice(&answer.context("an empty batch")?.payload)?;
            if answer["seq"] != last {
                bail!("a raw batch was answered {answer}");
            }
        }
        Ok(())
    }
}

/// What the publisher said of a message, without what the broker was told of its batch.
fn own_headers(message: &Message) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, values) in message.headers.iter().flat_map(HeaderMap::iter) {
        if !name.to_string().starts_with("Nats-") {
            values.iter().for_each(|value| headers.append(name.clone(), value.clone()));
        }
    }
    headers
}

async fn drain(consumer: &PullConsumer, first: u64, last: u64) -> Result<Vec<Message>> {
    let mut taken = Vec::with_capacity(usize::try_from(last + 1 - first)?);
    let mut due = first;
    while due <= last {
        let mut pulled = consumer.batch().max_messages(PULL).expires(EXPIRES).messages().await?;
        while due <= last
            && let Some(message) = pulled.next().await
        {
            let message = message.map_err(|error| anyhow::anyhow!(error))?;
            let found = message.info().map_err(|error| anyhow::anyhow!(error))?.stream_sequence;
            if found != due {
                bail!("number {found} came where {due} was due");
            }
            due += 1;
            taken.push(message);
        }
    }
    Ok(taken)
}

//! The stream of a lane on the broker: its name, its configuration, and what stands at one number of it.

use std::collections::HashMap;
use std::time::Duration;

use async_nats::HeaderMap;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::response::Response;
use async_nats::jetstream::stream::{
    Config, DiscardPolicy, LastRawMessageErrorKind, RetentionPolicy, State, StorageType, Stream,
};
use async_nats::jetstream::{Context, ErrorCode, context::GetStreamErrorKind};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

use super::{Error, Lane, LaneSettings, ShardMeta};

/// Header with the event id.
pub(super) const EVENT_ID: &str = "Likewise-Event-Id";
/// Header with the full name of the payload's message type.
pub(super) const SCHEMA: &str = "Likewise-Schema";
/// Key of the stream's metadata that names the incarnation of its shard.
const INCARNATION: &str = "likewise-incarnation";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Name of a lane's stream: `LW_REL_3_E0`.
#[must_use]
pub fn stream_name(prefix: &str, lane: &Lane, epoch: u32) -> String {
    format!("{prefix}_{}_{}_E{epoch}", lane.class.to_ascii_uppercase(), lane.shard)
}

/// The one subject of a lane's stream: `lw.rel.3.e0`.
#[must_use]
pub fn subject(prefix: &str, lane: &Lane, epoch: u32) -> String {
    format!("{}.{}.{}.e{epoch}", prefix.to_ascii_lowercase(), lane.class, lane.shard)
}

/// Headers of a message: what tells it from every other, and what it is. Consumers go by them.
#[must_use]
pub fn headers(event_id: Uuid, schema: &str) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(EVENT_ID, event_id.to_string());
    headers.insert(SCHEMA, schema);
    headers
}

/// What stands at one number of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// A message of ours.
    Event(Uuid),
    /// A message without a readable event id; what its header says.
    Foreign(String),
    /// Nothing: above the end, aged out, or a hole.
    Nothing,
}

/// Event id that the headers carry.
pub(super) fn found_event(headers: Option<&HeaderMap>) -> Found {
    let text = headers.and_then(|headers| headers.get(EVENT_ID)).map_or("", |value| value.as_str());
    match Uuid::try_parse(text) {
        Ok(id) => Found::Event(id),
        Err(_) if text.is_empty() => Found::Foreign("none".to_owned()),
        Err(_) => Found::Foreign(text.to_owned()),
    }
}

/// Opens a stream, or answers `None` when there is none of that name.
pub(super) async fn open(jetstream: &Context, name: &str) -> Result<Option<Stream>, Error> {
    match jetstream.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::STREAM_NOT_FOUND => Ok(None),
            _ => Err(Error::nats("look for the stream", error)),
        },
    }
}

/// Page of stream names.
#[derive(Deserialize)]
struct Names {
    total: usize,
    #[serde(default)]
    streams: Option<Vec<String>>,
}

/// Epochs of which the broker has a stream of this lane, in order.
pub(super) async fn epochs(jetstream: &Context, prefix: &str, lane: &Lane) -> Result<Vec<u32>, Error> {
    const DOING: &str = "list the streams of the lane";
    let filter = format!("{}.{}.{}.*", prefix.to_ascii_lowercase(), lane.class, lane.shard);
    let (mut epochs, mut seen) = (Vec::new(), 0);
    loop {
        let asked = json!({ "offset": seen, "subject": filter });
        let answer = jetstream.request("STREAM.NAMES", &asked).await.map_err(|error| Error::nats(DOING, error))?;
        let page: Names = match answer {
            Response::Ok(page) => page,
            Response::Err { error } => return Err(Error::nats(DOING, error)),
        };
        let names = page.streams.unwrap_or_default();
        seen += names.len();
        epochs.extend(names.iter().filter_map(|name| epoch_of(prefix, lane, name)));
        if names.is_empty() || seen >= page.total {
            epochs.sort_unstable();
            return Ok(epochs);
        }
    }
}

/// Epoch in a stream's name; `None` when it is not one of this lane.
fn epoch_of(prefix: &str, lane: &Lane, name: &str) -> Option<u32> {
    let (_, epoch) = name.rsplit_once("_E")?;
    let epoch = epoch.parse().ok()?;
    (stream_name(prefix, lane, epoch) == name).then_some(epoch)
}

/// Lets nothing more into a stream, for good. Said again it changes nothing.
pub(super) async fn seal(jetstream: &Context, stream: &Stream) -> Result<(), Error> {
    let config = &stream.cached_info().config;
    if config.sealed {
        return Ok(());
    }
    tracing::warn!(stream = config.name, "sealing the stream");
    // A sealed stream keeps what it has, so the server takes no age for it.
    let sealed = Config { sealed: true, max_age: Duration::ZERO, ..config.clone() };
    jetstream.update_stream(sealed).await.map_err(|error| Error::nats("seal the stream", error))?;
    Ok(())
}

/// Refuses a stream that is not this shard's.
pub(super) fn check_incarnation(found: &Config, expected: Uuid) -> Result<(), Error> {
    let incarnation = found.metadata.get(INCARNATION).map_or("", String::as_str);
    if incarnation == expected.to_string() {
        return Ok(());
    }
    Err(Error::ForeignStream { stream: found.name.clone(), found: incarnation.to_owned(), expected })
}

/// State of the stream as its leader has it now, and whether nothing more can come into it.
pub(super) async fn state(stream: &Stream) -> Result<(State, bool), Error> {
    let info = stream.get_info().await.map_err(|error| Error::nats("ask for the stream's state", error))?;
    Ok((info.state, info.config.sealed))
}

/// What stands at `seq`, asked of the stream's leader.
pub(super) async fn at(stream: &Stream, seq: u64) -> Result<Found, Error> {
    let message = message_at(stream, seq).await?;
    Ok(message.map_or(Found::Nothing, |message| found_event(Some(&message.headers))))
}

/// The message at `seq`, asked of the stream's leader; `None` above the end, aged out, or in a hole.
pub(super) async fn message_at(stream: &Stream, seq: u64) -> Result<Option<StreamMessage>, Error> {
    match stream.get_raw_message(seq).await {
        Ok(message) => Ok(Some(message)),
        Err(error) => match error.kind() {
            LastRawMessageErrorKind::NoMessageFound => Ok(None),
            LastRawMessageErrorKind::JetStream(cause) if cause.error_code() == ErrorCode::NO_MESSAGE_FOUND => Ok(None),
            _ => Err(Error::nats("read one message of the stream", error)),
        },
    }
}

/// Configuration of a lane's stream. Only age removes messages: a limit in bytes or messages would refuse changes that
/// are already facts.
fn config(settings: &LaneSettings, lane: &Lane, meta: ShardMeta, first_sequence: u64) -> Config {
    Config {
        name: stream_name(&settings.stream_prefix, lane, meta.epoch),
        subjects: vec![subject(&settings.stream_prefix, lane, meta.epoch)],
        description: Some(format!("Changes of lane {lane}, epoch {}", meta.epoch)),
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        discard: DiscardPolicy::New,
        max_bytes: -1,
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_age: DAY * settings.max_age_days,
        num_replicas: settings.replicas,
        deny_delete: true,
        deny_purge: true,
        allow_atomic_publish: true,
        first_sequence: Some(first_sequence),
        metadata: HashMap::from([(INCARNATION.to_owned(), meta.incarnation.to_string())]),
        ..Config::default()
    }
}

/// Opens the stream of this shard and epoch; a missing one is created so that its first message gets `first_sequence`.
/// A stream of another incarnation, or one that was sealed, is refused. Age and copies follow the settings.
pub(super) async fn ensure(
    jetstream: &Context,
    settings: &LaneSettings,
    lane: &Lane,
    meta: ShardMeta,
    first_sequence: u64,
) -> Result<Stream, Error> {
    let wanted = config(settings, lane, meta, first_sequence);
    let Some(stream) = open(jetstream, &wanted.name).await? else {
        tracing::info!(stream = wanted.name, first_sequence, "creating the stream");
        return jetstream.create_stream(wanted).await.map_err(|error| Error::nats("create the stream", error));
    };
    let found = &stream.cached_info().config;
    check_incarnation(found, meta.incarnation)?;
    if found.sealed {
        return Err(Error::Sealed { stream: found.name.clone() });
    }
    check(found, &wanted)?;
    if found.max_age == wanted.max_age && found.num_replicas == wanted.num_replicas {
        return Ok(stream);
    }
    tracing::info!(stream = wanted.name, "changing age or copies of the stream as the settings say");
    let changed = Config { max_age: wanted.max_age, num_replicas: wanted.num_replicas, ..found.clone() };
    jetstream.update_stream(changed).await.map_err(|error| Error::nats("change the stream's configuration", error))?;
    Ok(stream)
}

/// Refuses what would break a promise of lanes.
fn check(found: &Config, wanted: &Config) -> Result<(), Error> {
    let settings = [
        ("subjects", format!("{:?}", found.subjects), format!("{:?}", wanted.subjects)),
        ("storage", format!("{:?}", found.storage), format!("{:?}", wanted.storage)),
        ("retention", format!("{:?}", found.retention), format!("{:?}", wanted.retention)),
        ("discard", format!("{:?}", found.discard), format!("{:?}", wanted.discard)),
        ("max_bytes", found.max_bytes.to_string(), wanted.max_bytes.to_string()),
        ("max_msgs", found.max_messages.to_string(), wanted.max_messages.to_string()),
        ("deny_delete", found.deny_delete.to_string(), wanted.deny_delete.to_string()),
        ("deny_purge", found.deny_purge.to_string(), wanted.deny_purge.to_string()),
        ("allow_atomic", found.allow_atomic_publish.to_string(), wanted.allow_atomic_publish.to_string()),
    ];
    match settings.into_iter().find(|(_, found, expected)| found != expected) {
        None => Ok(()),
        Some((setting, value, expected)) => {
            Err(Error::StreamMisconfigured { stream: found.name.clone(), setting, found: value, expected })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::ShardStatus;
    use super::*;

    const LANE: Lane = Lane { class: "rel", shard: 3 };

    fn settings() -> LaneSettings {
        toml::from_str(super::super::LANE_DEFAULTS).expect("the defaults are valid")
    }

    #[test]
    fn names_are_made_of_prefix_class_shard_and_epoch() {
        assert_eq!(stream_name("LW", &LANE, 0), "LW_REL_3_E0");
        assert_eq!(subject("LW", &LANE, 12), "lw.rel.3.e12");
        assert_eq!(LANE.to_string(), "rel-03");
    }

    #[test]
    fn epochs_are_read_off_names_of_this_lane_only() {
        assert_eq!(epoch_of("LW", &LANE, "LW_REL_3_E12"), Some(12));
        for other in ["LW_REL_3_E", "LW_REL_3_E012", "LW_REL_31_E1", "LW_CONTENT_3_E1", "XLW_REL_3_E1", "LW_REL_3_E-1"]
        {
            assert_eq!(epoch_of("LW", &LANE, other), None, "{other}");
        }
    }

    #[test]
    fn a_stream_of_another_incarnation_or_another_configuration_is_refused() {
        let incarnation = Uuid::from_u128(1);
        let meta = ShardMeta {
            epoch: 0,
            incarnation,
            first_seq: 1,
            status: ShardStatus::Serving,
            epoch_pending: false,
            server_changed: false,
            server_started_at: time::OffsetDateTime::UNIX_EPOCH,
        };
        let wanted = config(&settings(), &LANE, meta, 1);
        assert!(check(&wanted, &wanted).is_ok() && check_incarnation(&wanted, incarnation).is_ok());
        assert!(matches!(check_incarnation(&wanted, Uuid::from_u128(2)), Err(Error::ForeignStream { .. })));
        let nameless = Config { metadata: HashMap::new(), ..wanted.clone() };
        assert!(matches!(check_incarnation(&nameless, incarnation), Err(Error::ForeignStream { .. })));
        let limited = Config { max_bytes: 1_000, ..wanted.clone() };
        let refused = check(&limited, &wanted);
        assert!(matches!(refused, Err(Error::StreamMisconfigured { setting: "max_bytes", .. })), "{refused:?}");
        let older = Config { max_age: DAY, num_replicas: 3, ..wanted.clone() };
        assert!(check(&older, &wanted).is_ok(), "age and copies follow the settings instead");
    }

    #[test]
    fn an_event_id_is_read_or_its_lack_is_told() {
        let mut headers = HeaderMap::new();
        assert_eq!(found_event(None), Found::Foreign("none".to_owned()));
        headers.insert(EVENT_ID, "junk");
        assert_eq!(found_event(Some(&headers)), Found::Foreign("junk".to_owned()));
        headers.insert(EVENT_ID, Uuid::from_u128(7).to_string());
        assert_eq!(found_event(Some(&headers)), Found::Event(Uuid::from_u128(7)));
    }
}

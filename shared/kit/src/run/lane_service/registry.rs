//! Consumers and holds of a lane's outbox, as they are called for.

use std::time::Duration;

use likewise_domain::lane::Offset;
use likewise_proto::convert::timestamp;
use likewise_proto::lanes::v1::{
    Hold, ListConsumersResponse, RegisterConsumerRequest, RegisteredConsumer, ReportProgressRequest, TakeHoldRequest,
};
use time::OffsetDateTime;
use tonic::{Code, Status};

use super::{away, expired};
use crate::errors;
use crate::lanes::registry::{
    self, Held, Place, Registered, consumers, holds, needs, register, release, report, take_hold,
};
use crate::lanes::{Error, TailSource};

/// Bounds of a time to live.
const TTL_MIN: u64 = 60;
const TTL_MAX: u64 = 90 * 24 * 60 * 60;
/// Longest name, and longest reason, in characters.
const NAME_MAX: usize = 64;
const REASON_MAX: usize = 500;

/// First number that the outbox has; one above the highest committed when it is empty.
async fn first_row(source: &dyn TailSource) -> Result<u64, Error> {
    let committed = source.committed().await?;
    Ok(source.after(0, 1).await?.first().map_or(committed + 1, |row| row.seq))
}

pub(super) async fn register_consumer(
    source: &dyn TailSource,
    owner: &str,
    asked: &RegisterConsumerRequest,
) -> Result<OffsetDateTime, Status> {
    let (name, next) = (checked_name("consumer", &asked.consumer)?, place(asked.epoch, asked.next_seq)?);
    let place = Place { next, ttl: time_to_live(asked.ttl_seconds)? };
    let stored = async {
        let pool = source.registry();
        // Written first: from here on nothing it needs is dropped, and what was dropped before is seen.
        let (expires_at, known) = register(pool, name, owner, place).await?;
        let (first, needed) = (first_row(source).await?, needs(&source.epochs().await?, next));
        if first <= needed {
            return Ok(Ok(expires_at));
        }
        // Refused, so it stays where it was.
        match known {
            Some(known) => drop(register(pool, name, owner, known).await?),
            None => drop(release(pool, name, owner).await?),
        }
        Ok(Err(expired(first)))
    };
    stored.await.map_err(|error: Error| away(&error))?
}

pub(super) async fn report_progress(
    source: &dyn TailSource,
    owner: &str,
    asked: &ReportProgressRequest,
) -> Result<OffsetDateTime, Status> {
    let (name, next) = (checked_name("consumer", &asked.consumer)?, place(asked.epoch, asked.next_seq)?);
    let heard = report(source.registry(), name, owner, next).await.map_err(|error| away(&error))?;
    heard.ok_or_else(|| {
        let message = "no consumer of that name is registered on the lane";
        errors::refused(Code::NotFound, "CONSUMER_NOT_REGISTERED", message)
    })
}

pub(super) async fn list(source: &dyn TailSource) -> Result<ListConsumersResponse, Status> {
    let listed = async {
        let pool = source.registry();
        Ok(ListConsumersResponse {
            consumers: consumers(pool).await?.into_iter().map(registered).collect(),
            holds: holds(pool).await?.into_iter().map(held).collect(),
            first_seq: first_row(source).await?,
            committed_seq: source.committed().await?,
        })
    };
    listed.await.map_err(|error: Error| away(&error))
}

pub(super) async fn release_consumer(source: &dyn TailSource, actor: &str, name: &str) -> Result<bool, Status> {
    let name = checked_name("consumer", name)?;
    release(source.registry(), name, actor).await.map_err(|error| away(&error))
}

pub(super) async fn hold(
    source: &dyn TailSource,
    owner: &str,
    asked: &TakeHoldRequest,
) -> Result<(u64, OffsetDateTime), Status> {
    let (name, ttl) = (checked_name("hold", &asked.hold)?, time_to_live(asked.ttl_seconds)?);
    if asked.reason.is_empty() || asked.reason.chars().count() > REASON_MAX {
        return Err(errors::invalid_field("reason", "must have 1..500 characters"));
    }
    if asked.from_seq == Some(0) {
        return Err(errors::invalid_field("from_seq", "must be 1 or more"));
    }
    let stored = async {
        // As with a consumer. The first row that there is then may be gone before this is written; asked again it is held.
        let first = first_row(source).await?;
        let mut from = asked.from_seq.unwrap_or(first);
        if first > from {
            // A hold of that name that there is already stays as it is.
            return Ok(Err(first));
        }
        let mut until = take_hold(source.registry(), name, owner, &asked.reason, from, ttl).await?;
        let first = first_row(source).await?;
        if first > from && asked.from_seq.is_none() {
            from = first;
            until = take_hold(source.registry(), name, owner, &asked.reason, from, ttl).await?;
        }
        let first = first_row(source).await?;
        if first > from {
            registry::release_hold(source.registry(), name, owner).await?;
            return Ok(Err(first));
        }
        Ok(Ok((from, until)))
    };
    stored.await.map_err(|error: Error| away(&error))?.map_err(expired)
}

pub(super) async fn release_hold(source: &dyn TailSource, actor: &str, name: &str) -> Result<bool, Status> {
    let name = checked_name("hold", name)?;
    registry::release_hold(source.registry(), name, actor).await.map_err(|error| away(&error))
}

fn registered(consumer: Registered) -> RegisteredConsumer {
    RegisteredConsumer {
        consumer: consumer.name,
        owner: consumer.owner,
        epoch: consumer.next.epoch.into(),
        next_seq: consumer.next.seq,
        registered_at: Some(timestamp(consumer.registered_at)),
        reported_at: Some(timestamp(consumer.reported_at)),
        expires_at: Some(timestamp(consumer.expires_at)),
    }
}

fn held(held: Held) -> Hold {
    Hold {
        hold: held.name,
        owner: held.owner,
        reason: held.reason,
        from_seq: held.from_seq,
        taken_at: Some(timestamp(held.taken_at)),
        expires_at: Some(timestamp(held.expires_at)),
    }
}

fn checked_name<'a>(field: &'static str, name: &'a str) -> Result<&'a str, Status> {
    let allowed = |letter: char| letter.is_ascii_alphanumeric() || "_.:-".contains(letter);
    if name.is_empty() || name.len() > NAME_MAX || !name.chars().all(allowed) {
        return Err(errors::invalid_field(field, "must have 1..64 of the characters A-Z a-z 0-9 _ . : -"));
    }
    Ok(name)
}

fn place(epoch: u64, next_seq: u64) -> Result<Offset, Status> {
    if next_seq == 0 || i64::try_from(next_seq).is_err() {
        return Err(errors::invalid_field("next_seq", "must be 1..9223372036854775807"));
    }
    match i32::try_from(epoch) {
        Ok(epoch) => Ok(Offset { epoch: epoch.unsigned_abs(), seq: next_seq }),
        Err(_) => Err(errors::invalid_field("epoch", "is larger than any there is")),
    }
}

fn time_to_live(seconds: u64) -> Result<Duration, Status> {
    if (TTL_MIN..=TTL_MAX).contains(&seconds) {
        Ok(Duration::from_secs(seconds))
    } else {
        Err(errors::invalid_field("ttl_seconds", "must be 60..7776000"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_places_and_times_are_checked() {
        assert!(checked_name("consumer", "counter.g1").is_ok());
        for wrong in ["", "a b", "ä", &"x".repeat(65)] {
            assert!(checked_name("consumer", wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(place(3, 9).expect("a place"), Offset { epoch: 3, seq: 9 });
        for (epoch, seq) in [(0, 0), (u64::MAX, 1), (0, u64::MAX)] {
            assert!(place(epoch, seq).is_err(), "{epoch} {seq}");
        }
        assert!([59, 7_776_001].into_iter().all(|seconds| time_to_live(seconds).is_err()));
        assert_eq!(time_to_live(60).expect("a minute"), Duration::from_secs(60));
    }
}

//! A few thousand people on one video: likes, repeated sends, changes of mind.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use likewise_proto::command::v1::{CommandOutcome, SetLikeResponse};
use likewise_proto::types::v1::LikeState::{self, Liked, Unliked};
use tonic::Code;
use tonic::transport::Channel;

use super::look::{Expected, failed, page_with, set};
use super::tale::Tale;
use super::{LIN, VIDEO};
use crate::site::{Person, Site, may_pass, reason};

/// People who act at once.
const AT_ONCE: usize = 256;
/// Accounts opened at once: each is a transaction of its own on one lane.
const OPENED_AT_ONCE: usize = 16;
/// Connections they share.
const CONNECTIONS: usize = 4;
/// Every so many people send their command twice.
const REPEATS: u32 = 5;
/// Every so many people take their like back.
const REGRETS: u32 = 10;
/// How long one command may be repeated before the demo gives up.
const COMMAND_BOUND: Duration = Duration::from_secs(60);

/// What one person did.
#[derive(Debug, Default)]
struct Deeds {
    commands: u64,
    applied: u64,
    likes: bool,
    name: String,
}

/// Lets the crowd loose; answers what must be true afterwards.
pub(crate) async fn burst(site: &Site, tale: &mut Tale, users: u32) -> Result<Expected> {
    tale.chapter(&format!("{users} people like {VIDEO} at once"));
    let channels = (0..CONNECTIONS).map(|_| site.channel()).collect::<Result<Vec<Channel>>>()?;
    let people: Vec<(u32, Person)> = (0..users)
        .zip(channels.iter().cycle())
        .map(|(number, channel)| (number, site.person(channel, &format!("fan-{number:06}"))))
        .collect();
    let begin = Instant::now();
    stream::iter(&people)
        .map(|(_, person)| async move { person.register().await.map_err(failed("opening an account")) })
        .buffer_unordered(OPENED_AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    tale.say(&format!("{users} accounts opened in {}", seconds(begin)));

    let begin = Instant::now();
    let deeds: Vec<Deeds> = stream::iter(people)
        .map(|(number, person)| act(number, person))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await?;
    let (took, rate_of) = (begin.elapsed(), |count: u64| per_second(count, begin.elapsed()));
    let (commands, applied) = (deeds.iter().map(|one| one.commands).sum(), deeds.iter().map(|one| one.applied).sum());
    let (commands_rate, changes_rate) = (rate_of(commands), rate_of(applied));
    tale.say(&format!(
        "{commands} commands in {:.1} s ({commands_rate}/s), {applied} changes ({changes_rate}/s)",
        took.as_secs_f64()
    ));
    let regrets = u64::from(users.div_ceil(REGRETS));
    tale.must("changes: one per like, one per regret, none per repeat", &applied, &(u64::from(users) + regrets));

    let likers: BTreeSet<String> = deeds.into_iter().filter(|one| one.likes).map(|one| one.name).collect();
    let expected = Expected { likers };
    let begin = Instant::now();
    let lin = site.person(&channels[0], LIN);
    page_with(&lin, expected.count(), None).await?;
    tale.must("the display count", &expected.count(), &(u64::from(users) - regrets));
    tale.say(&format!("it was reached {} after the last verdict", seconds(begin)));
    Ok(expected)
}

async fn act(number: u32, person: Person) -> Result<Deeds> {
    let mut deeds = Deeds { name: person.name.clone(), likes: true, ..Deeds::default() };
    let id = uuid::Uuid::now_v7().to_string();
    let first = persistently(&person, Liked, &id, &mut deeds).await?;
    if number.is_multiple_of(REPEATS) {
        let again = persistently(&person, Liked, &id, &mut deeds).await?;
        if again.operation != first.operation {
            bail!("{} got two verdicts for {id}: {:?} and {:?}", person.name, first.operation, again.operation);
        }
    }
    deeds.applied += u64::from(is_applied(&first));
    if number.is_multiple_of(REGRETS) {
        let id = uuid::Uuid::now_v7().to_string();
        let taken_back = persistently(&person, Unliked, &id, &mut deeds).await?;
        deeds.applied += u64::from(is_applied(&taken_back));
        deeds.likes = false;
    }
    Ok(deeds)
}

fn is_applied(response: &SetLikeResponse) -> bool {
    response.operation.as_ref().is_some_and(|verdict| verdict.outcome() == CommandOutcome::Applied)
}

/// Sends one intent until it has a verdict, always with the same id, as clients should.
async fn persistently(person: &Person, desired: LikeState, id: &str, deeds: &mut Deeds) -> Result<SetLikeResponse> {
    let begin = Instant::now();
    let mut pause = Duration::from_millis(20);
    loop {
        deeds.commands += 1;
        match set(person, VIDEO, desired, id).await {
            Ok(response) => return Ok(response),
            Err(status) if may_pass(&status) || status.code() == Code::ResourceExhausted => {
                if begin.elapsed() > COMMAND_BOUND {
                    bail!("{} has no verdict for {id} after {COMMAND_BOUND:?}: {}", person.name, reason(&status));
                }
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(1));
            }
            Err(status) => return Err(failed("a like")(status)).context(person.name.clone()),
        }
    }
}

fn seconds(begin: Instant) -> String {
    format!("{:.1} s", begin.elapsed().as_secs_f64())
}

fn per_second(count: u64, took: Duration) -> u128 {
    u128::from(count) * 1000 / took.as_millis().max(1)
}

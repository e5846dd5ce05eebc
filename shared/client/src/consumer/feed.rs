//! Between the lanes and a fold: messages become changes, and a batch becomes one transaction.

use likewise_domain::lane::Offset;
use likewise_kit::lanes::{ApplyError, Lane, LaneMessage, Projection};
use likewise_kit::pg::Pool;
use likewise_proto::{convert, events::v1 as events};
use prost::Message as _;
use uuid::Uuid;

use super::{Change, Fold, Transaction};

const FENCE: &str = include_str!("fence.sql");
const FOLDED: &str = include_str!("folded.sql");
const ADVANCE: &str = include_str!("advance.sql");
const QUARANTINE: &str = include_str!("quarantine_add.sql");
const QUARANTINED: &str = include_str!("quarantine_open.sql");

/// Feeds a fold from all lanes.
pub(super) struct Feed<F> {
    name: String,
    pool: Pool,
    fold: F,
}

/// A message that was not understood, and why.
type Unread<'a> = (&'a LaneMessage, String);

fn retry(error: impl std::error::Error) -> ApplyError {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    ApplyError::Retry(text)
}

impl<F: Fold> Feed<F> {
    pub(super) const fn new(name: String, pool: Pool, fold: F) -> Self {
        Self { name, pool, fold }
    }

    /// Up to where the lane was folded; refused when another owner has taken it.
    async fn folded(&self, transaction: &Transaction<'_>, lane: &str, owner_epoch: i64) -> Result<Offset, ApplyError> {
        let statement = transaction.prepare_cached(FOLDED).await.map_err(retry)?;
        let row = transaction.query_opt(&statement, &[&self.name, &lane, &owner_epoch]).await.map_err(retry)?;
        let row = row.ok_or(ApplyError::Fenced)?;
        let (epoch, next): (i32, i64) =
            (row.try_get("epoch").map_err(retry)?, row.try_get("next_offset").map_err(retry)?);
        Ok(Offset { epoch: epoch.cast_unsigned(), seq: next.cast_unsigned() })
    }

    async fn quarantine(
        &self,
        transaction: &Transaction<'_>,
        lane: &str,
        unread: &[Unread<'_>],
    ) -> Result<(), ApplyError> {
        let messages = || unread.iter().map(|(message, _)| *message);
        let epochs: Vec<i32> = messages().map(|message| message.offset.epoch.cast_signed()).collect();
        let offsets: Vec<i64> = messages().map(|message| message.offset.seq.cast_signed()).collect();
        let events: Vec<Uuid> = messages().map(|message| message.event_id).collect();
        let schemas: Vec<&str> = messages().map(|message| message.schema.as_str()).collect();
        let payloads: Vec<&[u8]> = messages().map(|message| &*message.payload).collect();
        let reasons: Vec<&str> = unread.iter().map(|(_, reason)| reason.as_str()).collect();
        for (message, reason) in unread {
            tracing::error!(lane, offset = %message.offset, schema = message.schema, reason, "a message goes to quarantine");
        }
        let statement = transaction.prepare_cached(QUARANTINE).await.map_err(retry)?;
        transaction
            .execute(&statement, &[&self.name, &lane, &epochs, &offsets, &events, &schemas, &payloads, &reasons])
            .await
            .map_err(retry)?;
        Ok(())
    }
}

impl<F: Fold> Projection for Feed<F> {
    fn name(&self) -> String {
        self.name.clone()
    }

    async fn fence(&self, lane: &Lane, owner_epoch: i64) -> Result<(), ApplyError> {
        let client = self.pool.get().await.map_err(retry)?;
        let statement = client.prepare_cached(FENCE).await.map_err(retry)?;
        let raised = client.query_opt(&statement, &[&self.name, &lane.to_string(), &owner_epoch]).await;
        raised.map_err(retry)?.map(drop).ok_or(ApplyError::Fenced)
    }

    async fn apply(&self, lane: &Lane, owner_epoch: i64, batch: &[LaneMessage]) -> Result<(), ApplyError> {
        let Some(last) = batch.last() else { return Ok(()) };
        let name = lane.to_string();
        let mut client = self.pool.get().await.map_err(retry)?;
        let transaction = client.transaction().await.map_err(retry)?;
        let folded = self.folded(&transaction, &name, owner_epoch).await?;
        let (mut changes, mut unread) = (Vec::with_capacity(batch.len()), Vec::new());
        // What was committed before a crash comes again, perhaps with more behind it.
        for message in batch.iter().filter(|message| message.offset >= folded) {
            match change(lane, message) {
                Ok(change) => changes.push(change),
                Err(reason) => unread.push((message, reason)),
            }
        }
        if !changes.is_empty() {
            let fold = self.fold.fold(&transaction, &changes).await;
            fold.map_err(|error| ApplyError::Retry(format!("the fold failed: {error}")))?;
        }
        if !unread.is_empty() {
            self.quarantine(&transaction, &name, &unread).await?;
        }
        let next = folded.max(Offset { seq: last.offset.seq + 1, ..last.offset });
        let (epoch, seq) = (next.epoch.cast_signed(), next.seq.cast_signed());
        let statement = transaction.prepare_cached(ADVANCE).await.map_err(retry)?;
        transaction.execute(&statement, &[&self.name, &name, &owner_epoch, &epoch, &seq]).await.map_err(retry)?;
        transaction.commit().await.map_err(retry)
    }

    async fn quarantined(&self, lane: &Lane) -> u64 {
        let count = async {
            let client = self.pool.get().await.map_err(retry)?;
            let statement = client.prepare_cached(QUARANTINED).await.map_err(retry)?;
            let row = client.query_one(&statement, &[&self.name, &lane.to_string()]).await.map_err(retry)?;
            row.try_get::<_, i64>(0).map_err(retry)
        };
        match count.await {
            Ok(count) => count.cast_unsigned(),
            Err(error) => {
                tracing::warn!(%lane, %error, "quarantined messages cannot be counted");
                0
            }
        }
    }
}

/// What a message says, or why it cannot be folded.
fn change(lane: &Lane, message: &LaneMessage) -> Result<Change, String> {
    let payload = message.payload.clone();
    let change = match message.schema.as_str() {
        convert::RELATION_CHANGED => {
            let wire = events::RelationChanged::decode(payload).map_err(|error| error.to_string())?;
            let event = convert::parse_relation_changed(&wire).map_err(|error| error.to_string())?;
            Change {
                user_id: event.user_id.to_string(),
                video_id: event.video_id.to_string(),
                state: event.state,
                version: event.version,
                hidden: event.hidden,
                since: event.state_changed_at,
                shard: event.shard,
                offset: message.offset,
                event_id: event.event_id,
            }
        }
        convert::RELATION_HIDDEN_CHANGED => {
            let wire = events::RelationHiddenChanged::decode(payload).map_err(|error| error.to_string())?;
            let event = convert::parse_relation_hidden_changed(&wire).map_err(|error| error.to_string())?;
            Change {
                user_id: event.user_id.to_string(),
                video_id: event.video_id.to_string(),
                state: event.state,
                version: event.version,
                hidden: event.hidden,
                since: event.state_changed_at,
                shard: event.shard,
                offset: message.offset,
                event_id: event.event_id,
            }
        }
        other => return Err(format!("unknown schema {other:?}")),
    };
    if change.event_id != message.event_id {
        return Err(format!("the payload is event {}", change.event_id));
    }
    if change.shard != lane.shard {
        return Err(format!("the change belongs to shard {}", change.shard));
    }
    Ok(change)
}

#[cfg(test)]
mod tests {
    use likewise_devstack::TestStack;
    use likewise_kit::config::PostgresSettings;
    use likewise_kit::pg::Servers;
    use time::OffsetDateTime;

    use super::super::{BoxError, make_tables};
    use super::*;

    const LANE: Lane = Lane { class: "rel", shard: 1 };

    /// Notes users; fails for the user `bad`, after it has noted all.
    struct Names;

    impl Fold for Names {
        const TABLES: &'static str = "create table if not exists name (user_id text)";

        async fn fold(&self, transaction: &Transaction<'_>, changes: &[Change]) -> Result<(), BoxError> {
            let users: Vec<&str> = changes.iter().map(|change| change.user_id.as_str()).collect();
            transaction.execute("insert into name select * from unnest($1::text[])", &[&users]).await?;
            if users.contains(&"bad") { Err("no".into()) } else { Ok(()) }
        }
    }

    fn message(seq: u64, user: &str, adjust: impl FnOnce(&mut events::RelationChanged)) -> LaneMessage {
        let event_id = Uuid::new_v4();
        let mut event = events::RelationChanged {
            event_id: event_id.to_string(),
            user_id: user.to_owned(),
            video_id: "V1".to_owned(),
            relation_version: 1,
            state: 1,
            previous_state: 2,
            source_shard: 1,
            source_commit_seq: seq,
            state_changed_at: Some(convert::timestamp(OffsetDateTime::UNIX_EPOCH)),
            operation_id: "op-1".to_owned(),
            cause: 1,
            ..events::RelationChanged::default()
        };
        adjust(&mut event);
        LaneMessage {
            lane: LANE,
            offset: Offset { epoch: 0, seq },
            event_id,
            schema: convert::RELATION_CHANGED.to_owned(),
            payload: event.encode_to_vec().into(),
            published_at: OffsetDateTime::UNIX_EPOCH,
        }
    }

    #[tokio::test]
    async fn inv_19_what_cannot_be_understood_is_kept_and_passed_and_what_fails_leaves_nothing() {
        let database = TestStack::get().database().await;
        let servers = Servers::new(&PostgresSettings::of("own", database.dsn().into()), "client-test");
        let pool = servers.pool("own", "public", 2).expect("a pool");
        for _ in 0..2 {
            make_tables::<Names>(&pool).await.expect("tables, and again");
        }
        let feed = Feed::new("names".to_owned(), pool, Names);
        let sql = database.connect().await.expect("a connection");
        let names = async || {
            let rows = sql.query("select user_id from name order by 1", &[]).await.expect("names");
            rows.iter().map(|row| row.get(0)).collect::<Vec<String>>()
        };
        feed.fence(&LANE, 5).await.expect("ours");
        let batch = [
            message(1, "ann", |_| ()),
            message(2, "ben", |event| event.source_shard = 3),
            LaneMessage { schema: "x.Other".to_owned(), ..message(3, "cai", |_| ()) },
            LaneMessage { payload: b"junk".as_slice().into(), ..message(4, "dan", |_| ()) },
            LaneMessage { event_id: Uuid::new_v4(), ..message(5, "eve", |_| ()) },
        ];
        feed.apply(&LANE, 5, &batch).await.expect("applied");
        assert_eq!((names().await, feed.quarantined(&LANE).await), (vec!["ann".to_owned()], 4));

        // Again, with more behind it, of which one fails the fold.
        let failing = [batch[0].clone(), message(6, "fay", |_| ()), message(7, "bad", |_| ())];
        assert!(matches!(feed.apply(&LANE, 5, &failing).await, Err(ApplyError::Retry(text)) if text.contains("no")));
        assert_eq!(names().await, ["ann"]);
        feed.apply(&LANE, 5, &[batch[0].clone(), message(6, "fay", |_| ())]).await.expect("applied");
        assert_eq!(names().await, ["ann", "fay"]);

        feed.fence(&LANE, 6).await.expect("a newer owner");
        assert!(matches!(feed.fence(&LANE, 5).await, Err(ApplyError::Fenced)));
        assert!(matches!(feed.apply(&LANE, 5, &[message(7, "gil", |_| ())]).await, Err(ApplyError::Fenced)));
        assert_eq!(names().await, ["ann", "fay"]);
    }
}

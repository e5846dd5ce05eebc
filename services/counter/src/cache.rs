//! Redis: the only door to the views that readers take counts from. Only the aggregator writes views; everybody else files
//! hints. The generation is in every key's name, so a writer of an old one reaches only keys nobody reads.
//!
//! A view is a hash at `<prefix>like:count:view:g<generation>:{<video>}` with the fields `raw`, `risk`, `policy`, `display`,
//! `generated_at` (microseconds since 1970), `pass` and `approximate` (0 or 1).

use fred::clients::Pool;
use fred::interfaces::{ClientLike as _, SetsInterface as _};
use fred::types::Value;
use fred::types::scripts::Script;
use futures::future::try_join_all;
use likewise_domain::id::VideoId;

use crate::display::DisplayRow;

/// Views written side by side; the client pipelines them per node.
const VIEWS_IN_FLIGHT: usize = 512;
/// Hints filed by one script call; Lua's `unpack` ends at a few thousand.
const HINTS_PER_CALL: usize = 512;
/// Hints nobody takes are forgotten; the next miss files them again.
const HINTS_LIFE_S: i64 = 600;

/// Redis did not do what was asked.
#[derive(Debug, thiserror::Error)]
#[error("{doing}")]
pub struct Error {
    doing: &'static str,
    source: fred::error::Error,
}

impl Error {
    /// The message with its cause on one line.
    #[must_use]
    pub fn chain(&self) -> String {
        format!("{}: {}", self.doing, self.source)
    }
}

/// How long views live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lives {
    /// Of a view, in seconds.
    pub view_s: u32,
    /// Of the view of a video without a row, in seconds.
    pub absent_s: u32,
}

/// Views and hints of one generation.
#[derive(Clone)]
pub struct Views {
    redis: Pool,
    prefix: String,
    generation: i32,
    lives: Lives,
    write_view: Script,
    file_hints: Script,
}

impl Views {
    /// Views of `generation`; `prefix` stands before every key.
    #[must_use]
    pub fn new(redis: Pool, prefix: &str, generation: i32, lives: Lives) -> Self {
        Self {
            redis,
            prefix: prefix.to_owned(),
            generation,
            lives,
            write_view: Script::from_lua(include_str!("cache/write_view.lua")),
            file_hints: Script::from_lua(include_str!("cache/file_hints.lua")),
        }
    }

    /// Key of a video's view. The braces put only the video into the slot.
    #[must_use]
    pub fn key(&self, video: &VideoId) -> String {
        format!("{}like:count:view:g{}:{{{video}}}", self.prefix, self.generation)
    }

    fn hints_key(&self) -> String {
        format!("{}like:count:hint:g{}", self.prefix, self.generation)
    }

    /// Writes views; one that a later pass has written stays. A row of pass 0 is that of a video without a row.
    ///
    /// # Errors
    /// When Redis does not answer. Some of the views may be written then; writing them again is harmless.
    pub async fn write(&self, rows: &[DisplayRow]) -> Result<(), Error> {
        // The first one alone: after a restart of Redis it brings the script back, once.
        let (first, rest) = rows.split_at(rows.len().min(1));
        for rows in std::iter::once(first).chain(rest.chunks(VIEWS_IN_FLIGHT)) {
            try_join_all(rows.iter().map(|row| self.write_one(row))).await?;
        }
        Ok(())
    }

    async fn write_one(&self, row: &DisplayRow) -> Result<(), Error> {
        let parts = &row.parts;
        let generated_at = i64::try_from(row.generated_at.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX);
        let life = if row.pass == 0 { self.lives.absent_s } else { self.lives.view_s };
        let arguments = vec![
            parts.raw,
            parts.risk_hidden,
            parts.policy_hidden,
            parts.display(),
            generated_at,
            row.pass,
            i64::from(parts.approximate),
            i64::from(life),
        ];
        let client = self.redis.next();
        let written: Result<i64, _> =
            self.write_view.evalsha_with_reload(client, self.key(&row.video), arguments).await;
        written.map(drop).map_err(|source| Error { doing: "write a view", source })
    }

    /// Files hints that these views were missed; beyond `hints_max` they are dropped.
    ///
    /// # Errors
    /// When Redis does not answer. The hints are lost then; the next miss files them again.
    pub async fn file_hints(&self, videos: &[VideoId], hints_max: usize) -> Result<(), Error> {
        for videos in videos.chunks(HINTS_PER_CALL) {
            let limits = [i64::try_from(hints_max).unwrap_or(i64::MAX), HINTS_LIFE_S].map(Value::from);
            let arguments: Vec<Value> =
                limits.into_iter().chain(videos.iter().map(|video| Value::from(video.as_str()))).collect();
            let filed: Result<i64, _> =
                self.file_hints.evalsha_with_reload(self.redis.next(), self.hints_key(), arguments).await;
            filed.map_err(|source| Error { doing: "file hints", source })?;
        }
        Ok(())
    }

    /// Takes some hints.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub async fn take_hints(&self, limit: usize) -> Result<Vec<VideoId>, Error> {
        let taken: Vec<String> = self
            .redis
            .spop(self.hints_key(), Some(limit))
            .await
            .map_err(|source| Error { doing: "take hints", source })?;
        // Hints are written by us; what is no id was written by somebody else and is nobody's video.
        Ok(taken.iter().filter_map(|text| VideoId::parse(text).ok()).collect())
    }

    /// Whether Redis answers.
    ///
    /// # Errors
    /// When it does not.
    pub async fn ping(&self) -> Result<(), Error> {
        self.redis.ping::<Value>(None).await.map(drop).map_err(|source| Error { doing: "ping Redis", source })
    }
}

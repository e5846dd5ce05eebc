//! The counter's fold on a connection of our own: what PostgreSQL counts without the counter before it.

use anyhow::{Result, bail};
use likewise_devstack::TestDatabase;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

use super::sql::{connect, statement_of};

/// Folds groups of changes of one hot video into one partition of the counter, in a generation of our own.
pub(crate) struct Folder {
    client: Client,
    fold: Statement,
    lane: String,
    next: usize,
}

/// Generation that the product never makes here.
const GENERATION: i32 = 1_000_000;
/// Virtual buckets of one partition: half of the default.
const VBUCKETS: usize = 128;

impl Folder {
    /// Prepares the counter's statement, and opens what it checks.
    pub(crate) async fn open(database: &TestDatabase, partition: usize) -> Result<Self> {
        let client = connect(database, &format!("counter_p{partition:02}")).await?;
        let fold = client.prepare(&statement_of("counter/src/store/fold_group.sql")?).await?;
        let lane = format!("bench-{partition}");
        let (vbuckets, epochs): (Vec<i32>, Vec<i64>) = (fences(), vec![1; VBUCKETS]);
        let open = statement_of("counter/src/store/fence_open.sql")?;
        client.execute(&open, &[&GENERATION, &vbuckets, &epochs]).await?;
        let raise = statement_of("counter/src/store/owner_raise.sql")?;
        client.query(&raise, &[&GENERATION, &lane, &1_i64]).await?;
        Ok(Self { client, fold, lane, next: 1 })
    }

    /// Groups of likes of new users of one video.
    pub(crate) fn prepare(&mut self, video: &str, groups: usize, len: usize) -> Vec<Likes> {
        (0..groups).map(|_| self.likes(video, len)).collect()
    }

    /// Folds them, one after the other.
    pub(crate) async fn run(&self, groups: &[Likes]) -> Result<()> {
        for likes in groups {
            self.fold_group(likes).await?;
        }
        Ok(())
    }

    fn likes(&mut self, video: &str, len: usize) -> Likes {
        let numbers = self.next..self.next + len;
        self.next += len;
        let mut users: Vec<(String, i32)> =
            numbers.clone().map(|number| (scattered(number), number % VBUCKETS)).map(small).collect();
        users.sort_unstable();
        let (users, vbuckets) = users.into_iter().unzip();
        Likes {
            offsets: numbers.filter_map(|number| i64::try_from(number).ok()).collect(),
            event_ids: (0..len).map(|_| Uuid::new_v4()).collect(),
            videos: vec![video.to_owned(); len],
            users,
            vbuckets,
        }
    }

    async fn fold_group(&self, likes: &Likes) -> Result<()> {
        let len = likes.users.len();
        let (fenced, epochs, no_seqs): (Vec<i32>, Vec<i64>, Option<Vec<i64>>) = (fences(), vec![1; VBUCKETS], None);
        let (versions, states): (Vec<i64>, Vec<i16>) = (vec![1; len], vec![1; len]);
        let parameters: [&(dyn ToSql + Sync); 17] = [
            &1_i32,
            &1_i32,
            &GENERATION,
            &1_i32,
            &self.lane,
            &1_i64,
            &0_i32,
            &likes.offsets,
            &likes.event_ids,
            &no_seqs,
            &fenced,
            &epochs,
            &likes.videos,
            &likes.users,
            &likes.vbuckets,
            &versions,
            &states,
        ];
        let row = self.client.query_one(&self.fold, &parameters).await?;
        let (outcome, written): (&str, i32) = (row.try_get(0)?, row.try_get(1)?);
        if outcome != "APPLIED" || usize::try_from(written) != Ok(len) {
            bail!("the fold of {len} likes wrote {written} and told {outcome}");
        }
        Ok(())
    }
}

/// One group.
pub(crate) struct Likes {
    offsets: Vec<i64>,
    event_ids: Vec<Uuid>,
    videos: Vec<String>,
    users: Vec<String>,
    vbuckets: Vec<i32>,
}

fn small((user, vbucket): (String, usize)) -> (String, i32) {
    (user, i32::try_from(vbucket).unwrap_or_default())
}

fn fences() -> Vec<i32> {
    (0..VBUCKETS).filter_map(|vbucket| i32::try_from(vbucket).ok()).collect()
}

/// A name of a user that says nothing about the order in which users came.
pub(crate) fn scattered(number: usize) -> String {
    format!("user-{:08x}", number.wrapping_mul(0x9e37_79b1) & 0xffff_ffff)
}

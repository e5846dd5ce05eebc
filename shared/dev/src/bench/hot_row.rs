//! What people write themselves: the relation and `like_count + 1` of the video in one transaction.

use std::sync::Arc;

use anyhow::Result;
use likewise_devstack::TestDatabase;
use tokio::sync::Mutex;
use tokio_postgres::{Client, Statement};

use super::load::{Load, Told, closed_loop};

/// Clients at once.
pub(crate) const CLIENTS: usize = 16;

const TABLES: &str = "
    create table video (video_id text primary key, like_count bigint not null) with (fillfactor = 50);
    insert into video values ('hot', 0);
    create table relation (user_id text not null, video_id text not null, liked_at timestamptz not null default now(),
        primary key (user_id, video_id))";
const INSERT: &str = "insert into relation (user_id, video_id) values ($1, 'hot')";
const COUNT: &str = "update video set like_count = like_count + 1 where video_id = 'hot'";

/// The two tables in a database of their own, and clients.
pub(crate) struct HotRow {
    clients: Vec<Arc<Mutex<Connection>>>,
    database: TestDatabase,
    users: usize,
}

struct Connection {
    client: Client,
    insert: Statement,
    count: Statement,
}

impl HotRow {
    /// Makes tables and connections.
    pub(crate) async fn open(database: TestDatabase) -> Result<Self> {
        database.connect().await?.batch_execute(TABLES).await?;
        let mut clients = Vec::new();
        for _ in 0..CLIENTS {
            let client = database.connect().await?;
            let (insert, count) = (client.prepare(INSERT).await?, client.prepare(COUNT).await?);
            clients.push(Arc::new(Mutex::new(Connection { client, insert, count })));
        }
        Ok(Self { clients, database, users: 0 })
    }

    /// `count` new users like the one video.
    pub(crate) async fn run(&mut self, count: usize) -> Result<Load> {
        let first = self.users;
        self.users += count;
        let clients = Arc::new(self.clients.clone());
        let load = closed_loop(count, CLIENTS, move |caller, number| {
            let client = Arc::clone(&clients[caller]);
            async move {
                match client.lock().await.like(&format!("user-{:06}", first + number)).await {
                    Ok(()) => Told::Changed,
                    Err(error) => Told::Wrong(error.to_string()),
                }
            }
        });
        load.await
    }

    /// What the row says.
    pub(crate) async fn counted(&self) -> Result<i64> {
        Ok(self.database.connect().await?.query_one("select like_count from video", &[]).await?.try_get(0)?)
    }
}

impl Connection {
    async fn like(&mut self, user: &str) -> Result<(), tokio_postgres::Error> {
        let transaction = self.client.transaction().await?;
        transaction.execute(&self.insert, &[&user]).await?;
        transaction.execute(&self.count, &[]).await?;
        transaction.commit().await
    }
}

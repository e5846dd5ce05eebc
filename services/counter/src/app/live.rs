//! The generation a process works on: its frozen bucket space, and the routes of its active manifest.

use std::sync::Arc;

use arc_swap::ArcSwap;

use crate::bucket::BucketSpace;
use crate::route::Routes;
use crate::store::setup::Generation;
use crate::store::{Error, Store};

/// Slice of videos that one aggregator sums. There is one so far, with every video in it.
pub const SLICE: i32 = 0;

/// The active generation, as stored.
pub struct Live {
    store: Arc<Store>,
    generation: i32,
    lanes: u16,
    space: BucketSpace,
    routes: ArcSwap<Routes>,
}

impl Live {
    /// Takes a generation with its stored contract and the routes of its sealed manifest.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or what is stored cannot be used by this build.
    pub async fn load(store: Arc<Store>, generation: &Generation) -> Result<Self, Error> {
        let contract = store.contract(generation.bucket_space).await?;
        let space = BucketSpace::new(contract).map_err(|error| Error::Stored(error.to_string()))?;
        let number = generation.generation;
        let Some(manifest) = generation.manifest else {
            return Err(Error::Stored(format!("generation {number} has no manifest")));
        };
        let routes = read_routes(&store, number, manifest, &space).await?;
        let lanes = u16::try_from(generation.lanes).unwrap_or(u16::MAX);
        Ok(Self { store, generation: number, lanes, space, routes: ArcSwap::from_pointee(routes) })
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Number of the generation.
    #[must_use]
    pub const fn generation(&self) -> i32 {
        self.generation
    }

    /// Lanes it consumes.
    #[must_use]
    pub const fn lanes(&self) -> u16 {
        self.lanes
    }

    /// Its frozen bucket space.
    #[must_use]
    pub const fn space(&self) -> &BucketSpace {
        &self.space
    }

    /// Name of its projection: checkpoints and leases are kept under it.
    #[must_use]
    pub fn projection(&self) -> String {
        format!("counter.g{}", self.generation)
    }

    /// The present routes.
    #[must_use]
    pub fn routes(&self) -> Arc<Routes> {
        self.routes.load_full()
    }

    /// Reads the routes again if `manifest` is another one than the present.
    ///
    /// # Errors
    /// When PostgreSQL does not answer, or the manifest is not whole; the present routes stay.
    pub async fn follow(&self, manifest: i64) -> Result<(), Error> {
        if self.routes.load().manifest() != manifest {
            let routes = read_routes(&self.store, self.generation, manifest, &self.space).await?;
            tracing::info!(generation = self.generation, manifest, "routes follow another manifest");
            self.routes.store(Arc::new(routes));
        }
        Ok(())
    }

    /// Reads which manifest is active and follows it.
    ///
    /// # Errors
    /// As for [`follow`](Self::follow).
    pub async fn refresh(&self) -> Result<(), Error> {
        let (manifest, _) = self.store.poll(self.generation, "").await?;
        match manifest {
            Some(manifest) => self.follow(manifest).await,
            None => Err(Error::Stored(format!("generation {} has no manifest", self.generation))),
        }
    }
}

/// Reads a manifest's routes and opens the partitions it names that this process does not know yet.
async fn read_routes(store: &Store, generation: i32, manifest: i64, space: &BucketSpace) -> Result<Routes, Error> {
    let routes = store.routes(generation, manifest, space.vbuckets()).await?;
    if routes.partitions().iter().any(|name| store.partition(name).is_err()) {
        for placed in store.placements().await? {
            if store.partition(&placed.partition).is_err() {
                store.open_partition(&placed.partition, &placed.server, &placed.schema)?;
            }
        }
    }
    for name in routes.partitions() {
        store.partition(name)?;
    }
    Ok(routes)
}

//! Single flight for batches: whatever is being loaded already is waited for, not loaded again.
//!
//! The load runs in a task of its own: a caller that goes away takes nothing with it, and nobody waits for a caller.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::task::TaskTracker;

type Loaded<K, V, E> = Arc<Result<HashMap<K, V>, E>>;
type Landing<K, V, E> = watch::Receiver<Option<Loaded<K, V, E>>>;

type Board<K, T> = Arc<Mutex<HashMap<K, T>>>;

/// Loads in flight, by key.
pub struct Flights<K, V, E> {
    flying: Board<K, Landing<K, V, E>>,
    tasks: TaskTracker,
}

impl<K, V, E> Flights<K, V, E>
where
    K: Eq + Hash + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
    E: Clone + Send + Sync + 'static,
{
    /// None in flight; loads run as tasks of `tasks`.
    #[must_use]
    pub fn new(tasks: TaskTracker) -> Self {
        Self { flying: Arc::default(), tasks }
    }

    /// What the loads of `keys` bring. Keys that nobody is loading go to `load` together, in one call; it should leave
    /// what it found in a cache before it ends, because from then on the same key may be loaded again. A key may be
    /// missing in the answer when its load did not bring it.
    ///
    /// # Errors
    /// The error of a load, or `lost` when its task ended without an answer.
    pub async fn load<L, F>(&self, keys: Vec<K>, lost: E, load: L) -> Result<HashMap<K, V>, E>
    where
        L: FnOnce(Vec<K>) -> F,
        F: Future<Output = Result<HashMap<K, V>, E>> + Send + 'static,
    {
        let mut waiting = self.board(keys, load);
        let mut found = HashMap::new();
        for (keys, landing) in &mut waiting {
            let loaded = match landing.wait_for(Option::is_some).await {
                Ok(loaded) => loaded.clone(),
                Err(_) => None,
            };
            match loaded.as_deref() {
                Some(Ok(values)) => {
                    found.extend(keys.drain(..).filter_map(|key| Some((key.clone(), values.get(&key)?.clone()))));
                }
                Some(Err(error)) => return Err(error.clone()),
                None => return Err(lost),
            }
        }
        Ok(found)
    }

    /// Starts loads as [`load`](Self::load) does, and does not wait for them.
    pub fn start<L, F>(&self, keys: Vec<K>, load: L)
    where
        L: FnOnce(Vec<K>) -> F,
        F: Future<Output = Result<HashMap<K, V>, E>> + Send + 'static,
    {
        drop(self.board(keys, load));
    }

    /// Starts a load of what is not in flight, and answers what to wait for.
    fn board<L, F>(&self, keys: Vec<K>, load: L) -> Vec<(Vec<K>, Landing<K, V, E>)>
    where
        L: FnOnce(Vec<K>) -> F,
        F: Future<Output = Result<HashMap<K, V>, E>> + Send + 'static,
    {
        let mut waiting: Vec<(Vec<K>, Landing<K, V, E>)> = Vec::new();
        let mut own = Vec::new();
        let (landed, landing) = watch::channel(None);
        {
            let mut flying = lock(&self.flying);
            for key in keys {
                match flying.get(&key) {
                    None => {
                        flying.insert(key.clone(), landing.clone());
                        own.push(key);
                    }
                    Some(other) if other.same_channel(&landing) => {}
                    Some(other) => match waiting.iter_mut().find(|(_, known)| known.same_channel(other)) {
                        Some((keys, _)) => keys.push(key),
                        None => waiting.push((vec![key], other.clone())),
                    },
                }
            }
        }
        if own.is_empty() {
            return waiting;
        }
        let ground = Ground { flying: Arc::clone(&self.flying), keys: own.clone() };
        let loading = load(own.clone());
        self.tasks.spawn(async move {
            let loaded = loading.await;
            drop(ground);
            // Nobody waits any more: that is no error.
            drop(landed.send(Some(Arc::new(loaded))));
        });
        waiting.push((own, landing));
        waiting
    }
}

/// Takes its keys off the board when the load ends, however it ends.
struct Ground<K: Eq + Hash, T> {
    flying: Board<K, T>,
    keys: Vec<K>,
}

impl<K: Eq + Hash, T> Drop for Ground<K, T> {
    fn drop(&mut self) {
        let mut flying = lock(&self.flying);
        for key in &self.keys {
            flying.remove(key);
        }
    }
}

/// A panic while it was held leaves plain data that is still right.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Semaphore;

    use super::*;

    type Loads = Flights<u32, u32, &'static str>;

    #[tokio::test]
    async fn what_is_in_flight_is_waited_for() {
        let flights = Arc::new(Loads::new(TaskTracker::new()));
        let gate = Arc::new(Semaphore::new(0));
        let asked: Arc<Mutex<Vec<Vec<u32>>>> = Arc::default();
        let ask = |keys: Vec<u32>| {
            let (flights, gate, asked) = (Arc::clone(&flights), Arc::clone(&gate), Arc::clone(&asked));
            async move {
                let load = |keys: Vec<u32>| async move {
                    asked.lock().unwrap().push(keys.clone());
                    gate.acquire().await.unwrap().forget();
                    Ok(keys.into_iter().filter(|key| *key != 9).map(|key| (key, key * 10)).collect())
                };
                let mut found: Vec<_> = flights.load(keys, "lost", load).await?.into_iter().collect();
                found.sort_unstable();
                Ok::<_, &'static str>(found)
            }
        };
        let one = tokio::spawn(ask(vec![1, 2, 2, 9]));
        while asked.lock().unwrap().is_empty() {
            tokio::task::yield_now().await;
        }
        let two = tokio::spawn(ask(vec![2, 3]));
        while asked.lock().unwrap().len() < 2 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(2);
        assert_eq!(one.await.unwrap(), Ok(vec![(1, 10), (2, 20)]), "a key that was not found is missing");
        assert_eq!(two.await.unwrap(), Ok(vec![(2, 20), (3, 30)]));
        assert_eq!(*asked.lock().unwrap(), [vec![1, 2, 9], vec![3]], "2 was loaded once");
    }

    #[tokio::test]
    async fn a_caller_that_leaves_takes_nothing_with_it() {
        let flights = Arc::new(Loads::new(TaskTracker::new()));
        let gate = Arc::new(Semaphore::new(0));
        let loads = Arc::new(AtomicUsize::new(0));
        let load = |keys: Vec<u32>| {
            let (gate, loads) = (Arc::clone(&gate), Arc::clone(&loads));
            async move {
                loads.fetch_add(1, Ordering::SeqCst);
                gate.acquire().await.unwrap().forget();
                Ok(keys.into_iter().map(|key| (key, key)).collect())
            }
        };
        let mut leaving = Box::pin(flights.load(vec![1], "lost", load));
        assert!(futures::poll!(&mut leaving).is_pending());
        let mut staying = Box::pin(flights.load(vec![1], "lost", load));
        assert!(futures::poll!(&mut staying).is_pending());
        drop(leaving);
        gate.add_permits(1);
        assert_eq!(staying.await, Ok(HashMap::from([(1, 1)])));
        assert_eq!(loads.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_load_that_dies_is_an_error_and_the_next_one_is_new() {
        let flights = Loads::new(TaskTracker::new());
        let died = flights.load(vec![1], "lost", |_| async { panic!("on purpose") }).await;
        assert_eq!(died, Err("lost"));
        let failed = flights.load(vec![1], "lost", |_| async { Err("away") }).await;
        assert_eq!(failed, Err("away"));
        let loaded = flights.load(vec![1], "lost", |_| async { Ok(HashMap::from([(1, 7)])) }).await;
        assert_eq!(loaded, Ok(HashMap::from([(1, 7)])));
    }
}

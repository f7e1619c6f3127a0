//! Unit tests of what the tasks of the store have in common, and a store without a Redis for those of others.

use super::replicas::ReplicaWait;
use super::scripts::Shas;
use super::*;
use crate::store::StoreHealth;

/// As of a store that waits for one replica, of a register of four shards.
pub(super) fn shared(redo: Option<Redo>) -> RedisShared {
    let info = StoreInfo {
        kind: "redis",
        durability: String::new(),
        full: "",
        act_bytes_max: 0,
        move_bytes_max: 0,
        register: 7,
        shards: 4,
        commits_shards_together: true,
        ownership_is_standing: false,
        restored_from: None,
    };
    RedisShared::new(StoreParts {
        keys: Keys::new("allod").unwrap(),
        shas: Arc::new(Shas(Default::default())),
        info,
        place: "a test".into(),
        card: NodeCard::default(),
        keep_seconds: 0,
        keep_bytes: 0,
        replicas: 1,
        waiting: ReplicaWait::Memory,
        appends: None,
        heal_bytes: 1 << 20,
        record_format: None,
        lates: Lates::default(),
        redo,
        identity: None,
        accepts_rollback: false,
    })
}

#[tokio::test]
async fn a_task_that_crashes_is_the_end_of_the_store_and_one_that_ends_or_is_put_off_is_not() {
    let shared = Arc::new(shared(None));
    tokio::spawn(missed(&shared, "ends", async {})).await.unwrap();
    let waits = tokio::spawn(missed(&shared, "waits", std::future::pending()));
    waits.abort();
    assert!(waits.await.unwrap_err().is_cancelled());
    assert_eq!(shared.health(), StoreHealth::Ready);
    let crashes = async {
        tokio::task::yield_now().await;
        panic!("as a test does");
    };
    assert!(tokio::spawn(missed(&shared, "crashes", crashes)).await.unwrap_err().is_panic());
    assert_eq!(shared.health(), StoreHealth::Failed);
    let failure = shared.failed_of().unwrap();
    assert!(failure.contains("the task of the store that crashes crashed"), "{failure}");
}

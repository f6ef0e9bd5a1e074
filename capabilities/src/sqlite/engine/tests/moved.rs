//! Files of a database that move while it is open.

use super::*;

#[tokio::test]
async fn a_file_that_was_moved_or_replaced_takes_no_write() {
    let folder = TempDir::new().unwrap();
    let engine = open(&folder).await;
    add(engine.clone(), 1).await.unwrap();
    // A write right after the last check finds out only after its commit.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let (path, away) = (folder.path().join("larder.db"), folder.path().join("away.db"));
    std::fs::rename(&path, &away).unwrap();
    let refused = add(engine.clone(), 2).await.unwrap_err();
    assert_eq!((refused.kind(), refused.outcome()), (ErrorKind::Unavailable, Outcome::NotApplied));
    std::fs::write(&path, []).unwrap();
    assert_eq!(add(engine.clone(), 3).await.unwrap_err().kind(), ErrorKind::Unavailable);
    std::fs::rename(&away, &path).unwrap();
    add(engine.clone(), 4).await.unwrap();
    assert_eq!(numbers(&engine).await, [1, 4]);
}

/// A job moves a file of the database, so that it moves between the check before the transaction and the
/// commit.
#[tokio::test]
async fn a_commit_to_a_file_that_moved_is_not_acknowledged() {
    for suffix in ["", "-wal", "-shm"] {
        let folder = TempDir::new().unwrap();
        let engine = open(&folder).await;
        let file = folder.path().join(format!("larder.db{suffix}"));
        let (from, to) = (file.clone(), folder.path().join("aside"));
        let moving = engine.write("test.move", move |sql| {
            sql.execute("INSERT INTO numbers VALUES (1)", [])?;
            std::fs::rename(from, to).unwrap();
            Ok(())
        });
        let error = moving.await.unwrap_err();
        let told = (error.kind(), error.outcome(), error.operation());
        assert_eq!(told, (ErrorKind::Unavailable, Outcome::Unknown, "test.move"), "{suffix}");
        assert!(error.message().contains("moved, replaced or removed"), "{error}");
        for replaced in [false, true] {
            if replaced {
                std::fs::write(&file, []).unwrap();
            }
            let error = add(engine.clone(), 2).await.unwrap_err();
            let told = (error.kind(), error.outcome());
            assert_eq!(told, (ErrorKind::Unavailable, Outcome::NotApplied), "{suffix}");
        }
        std::fs::rename(folder.path().join("aside"), &file).unwrap();
        add(engine.clone(), 3).await.unwrap();
        assert_eq!(numbers(&engine).await, [1, 3]);
    }
}

//! Programs and folders of different format numbers.

use super::*;

async fn open_at(root: &Path, format: i64) -> Result<FsBlobStore> {
    FsBlobStore::open_at(FsConfig::new(root), Namespace::new("n").unwrap(), format).await
}

/// Returns the paths and contents of all files below the root.
pub(super) fn files(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(path).unwrap());
            }
        }
    }
    found
}

#[tokio::test]
async fn a_folder_of_another_format_is_refused_by_number_and_left_as_it_is() {
    let root = TempDir::new().unwrap();
    let newer = open_at(root.path(), FORMAT + 1).await.unwrap();
    newer.put_bytes(&key("a"), "text".into()).await.unwrap();
    drop(newer);
    std::fs::write(root.path().join(".larder/tmp/left"), "left over").unwrap();
    let before = files(root.path());
    let error = open_at(root.path(), FORMAT).await.unwrap_err();
    assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
    assert!(error.message().contains("has format 3; this release supports up to format 2"), "{error}");
    assert!(error.message().contains("`larder load` into a new folder"), "{error}");
    assert_eq!(files(root.path()), before);
    for damaged in ["", "1", "x\n", "-1\n", "\u{e9}\n", "11111111111111111111111111\n"] {
        std::fs::write(root.path().join(".larder/format"), damaged).unwrap();
        assert_eq!(open_at(root.path(), FORMAT).await.unwrap_err().kind(), ErrorKind::Corrupt, "{damaged:?}");
    }
}

#[tokio::test]
async fn programs_that_write_to_a_new_folder_together_agree_on_its_format() {
    for _ in 0..20 {
        let root = TempDir::new().unwrap();
        let write = async |number: i64| {
            let store = open_at(root.path(), FORMAT + number % 2).await?;
            store.put_bytes(&key(&number.to_string()), "text".into()).await
        };
        let opening = (0..8).map(write);
        let opened = futures_util::future::join_all(opening).await;
        let number = std::fs::read_to_string(root.path().join(".larder/format")).unwrap();
        for (program, opened) in opened.into_iter().enumerate() {
            // A later release also opens the folders of this one.
            let supported = program % 2 == 1 || number == "1\n";
            assert_eq!(
                opened.map(drop).map_err(|error| error.kind()),
                if supported { Ok(()) } else { Err(ErrorKind::Unsupported) }
            );
        }
        assert_eq!(temporary_files(root.path()), Vec::<PathBuf>::new());
    }
}

/// The first format number changed nothing else.
#[tokio::test]
async fn a_folder_without_a_format_number_gets_one() {
    let root = TempDir::new().unwrap();
    open(root.path()).await.put_bytes(&key("a"), "text".into()).await.unwrap();
    std::fs::remove_file(root.path().join(".larder/format")).unwrap();
    assert_eq!(open(root.path()).await.get_bytes(&key("a")).await.unwrap(), "text");
    assert_eq!(std::fs::read_to_string(root.path().join(".larder/format")).unwrap(), "1\n");
}

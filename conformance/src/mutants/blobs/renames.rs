//! Wrong renames.

use larder_kernel::{
    BlobBody, BlobGetOptions, BlobInfo, BlobKey, BlobPutOptions, BlobStore, Capability, Error, ErrorKind,
    RenameMode, Result,
};

use super::{Defect, Wrong};

impl Wrong {
    pub(super) async fn rename_wrongly(
        &self,
        source: &BlobKey,
        target: &BlobKey,
        mode: RenameMode,
    ) -> Result<BlobInfo> {
        let store = &self.inner;
        match self.defect {
            Defect::RenamesMissing => Err(Error::unsupported("blobs.rename", Capability::BlobRename)),
            Defect::RenameDropsMetadata if source != target => {
                let renamed = store.rename(source, target, mode).await?;
                let read = store.get(target, BlobGetOptions::default()).await?;
                store.put(target, BlobBody::Stream(read.bytes), BlobPutOptions::default()).await?;
                Ok(renamed)
            }
            Defect::RenameLeavesSource if source != target => {
                let renamed = store.rename(source, target, mode).await?;
                store.copy(target, source).await?;
                Ok(renamed)
            }
            Defect::RenameTagsAgain if source != target => {
                store.rename(source, target, mode).await?;
                let read = store.get(target, BlobGetOptions::default()).await?;
                let mut options = BlobPutOptions::default().with_all_metadata(read.info.metadata);
                options.content_type = read.info.content_type;
                store.put(target, BlobBody::Stream(read.bytes), options).await
            }
            Defect::RenameReplaces => store.rename(source, target, RenameMode::Replace).await,
            Defect::RenameRefuses => store.rename(source, target, RenameMode::Refuse).await,
            Defect::RenameOntoItselfDeletes if source == target && mode == RenameMode::Replace => {
                let renamed = store.rename(source, target, mode).await?;
                store.delete(source).await?;
                Ok(renamed)
            }
            Defect::RenameOfNothingDeletes => {
                let renamed = store.rename(source, target, mode).await;
                if renamed.as_ref().is_err_and(|error| error.kind() == ErrorKind::NotFound) {
                    store.delete(target).await?;
                }
                renamed
            }
            _ => store.rename(source, target, mode).await,
        }
    }
}

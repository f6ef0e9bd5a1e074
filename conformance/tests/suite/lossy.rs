//! Shared code of the stores with defects that the levels for faults and kills must catch. The stores
//! implement only the calls of these levels' clients.

/// Implements `HistoryProvider` for a type with `append`, `page` and `follow`, which are the only methods
/// that the clients of these levels call.
macro_rules! history_of {
    ($store:ident) => {
        #[::async_trait::async_trait]
        impl ::larder_kernel::HistoryProvider for $store {
            async fn append_many(
                &self,
                thread: &::larder_kernel::Thread,
                messages: Vec<::larder_kernel::ChatMessage>,
                options: ::larder_kernel::AppendOptions,
            ) -> ::larder_kernel::Result<::larder_kernel::Appended> {
                self.append(thread, messages, options).await
            }

            async fn page_after(
                &self,
                thread: &::larder_kernel::Thread,
                after: ::larder_kernel::Seq,
                limit: usize,
            ) -> ::larder_kernel::Result<Vec<::larder_kernel::StoredMessage>> {
                self.page(thread, after, limit).await
            }

            async fn get_messages(
                &self,
                _: &::larder_kernel::Thread,
                _: u64,
                _: usize,
            ) -> ::larder_kernel::Result<Vec<::larder_kernel::StoredMessage>> {
                Err($crate::lossy::never())
            }

            async fn tail(
                &self,
                _: &::larder_kernel::Thread,
                _: Option<::larder_kernel::Seq>,
                _: usize,
            ) -> ::larder_kernel::Result<Vec<::larder_kernel::StoredMessage>> {
                Err($crate::lossy::never())
            }

            async fn tail_matching(
                &self,
                _: &::larder_kernel::Thread,
                _: &::larder_kernel::MessageFilter,
                _: Option<::larder_kernel::Seq>,
                _: usize,
            ) -> ::larder_kernel::Result<Vec<::larder_kernel::StoredMessage>> {
                Err($crate::lossy::never())
            }

            async fn thread_info(
                &self,
                _: &::larder_kernel::Thread,
            ) -> ::larder_kernel::Result<::larder_kernel::ThreadInfo> {
                Err($crate::lossy::never())
            }

            async fn clear(&self, _: &::larder_kernel::Thread) -> ::larder_kernel::Result<u64> {
                Err($crate::lossy::never())
            }

            async fn clear_run(
                &self,
                _: &::larder_kernel::Thread,
                _: &::larder_kernel::RunId,
            ) -> ::larder_kernel::Result<u64> {
                Err($crate::lossy::never())
            }

            async fn fork(
                &self,
                _: &::larder_kernel::Thread,
                _: &::larder_kernel::Thread,
                _: Option<::larder_kernel::Seq>,
            ) -> ::larder_kernel::Result<::larder_kernel::Forked> {
                Err($crate::lossy::never())
            }

            async fn replace(
                &self,
                _: &::larder_kernel::Thread,
                _: ::larder_kernel::Replacement,
            ) -> ::larder_kernel::Result<::larder_kernel::Replaced> {
                Err($crate::lossy::never())
            }

            async fn list_threads(
                &self,
                _: Option<&::larder_kernel::AgentId>,
                _: ::larder_kernel::PageRequest<::larder_kernel::Thread>,
            ) -> ::larder_kernel::Result<
                ::larder_kernel::Page<::larder_kernel::ThreadInfo, ::larder_kernel::Thread>,
            > {
                Err($crate::lossy::never())
            }

            async fn set_ttl(
                &self,
                _: &::larder_kernel::Thread,
                _: Option<::larder_kernel::Ttl>,
            ) -> ::larder_kernel::Result<()> {
                Err($crate::lossy::never())
            }

            async fn subscribe(
                &self,
                thread: &::larder_kernel::Thread,
                after: ::larder_kernel::Seq,
            ) -> ::larder_kernel::Result<::larder_kernel::HistoryEvents> {
                self.follow(thread, after).await
            }
        }
    };
}
pub(crate) use history_of;

/// Returns the error of a method that no client calls.
pub(crate) fn never() -> larder_kernel::Error {
    larder_kernel::Error::new(larder_kernel::ErrorKind::Unexpected, "lossy", "no client calls this")
}

//! A proxy that accepts only TLS and passes the data on to the server.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// The start of a connection.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Begins {
    /// With the handshake.
    AtOnce,
    /// With Postgres' request for TLS.
    OnRequest,
}

/// Postgres' request for TLS: its length and its code.
const REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];

/// Returns the port of a proxy for the server at that address. It serves as long as the runtime exists.
pub(crate) async fn front(acceptor: TlsAcceptor, begins: Begins, server: String) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(serve(client, acceptor.clone(), begins, server.clone()));
        }
    });
    port
}

async fn serve(
    mut client: TcpStream,
    acceptor: TlsAcceptor,
    begins: Begins,
    server: String,
) -> io::Result<()> {
    client.set_nodelay(true)?;
    if begins == Begins::OnRequest {
        let mut request = [0; REQUEST.len()];
        client.read_exact(&mut request).await?;
        if request != REQUEST {
            return Ok(());
        }
        client.write_all(b"S").await?;
    }
    let mut client = acceptor.accept(client).await?;
    let mut behind = TcpStream::connect(server).await?;
    behind.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut behind).await.map(drop)
}

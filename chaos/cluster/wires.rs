//! The wires between agents and managers, so that one agent's can be cut: TCP proxies in the harness.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result};
use quorate_base::{TaskGroup, TaskKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;

/// Bytes that one direction of a wire holds while it is cut.
const BUFFER: usize = 16 << 10;
/// Bound of a connection to a manager.
const DIAL: Duration = Duration::from_secs(2);

/// What is wrong with an agent's wires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Nothing gets through, and nobody is told; it arrives when the wire is mended.
    Silent,
    /// Connections break, and new ones too.
    Broken,
}

type Cuts = BTreeMap<String, Cut>;

/// An agent as the wires recognise it.
#[derive(Clone, Debug)]
pub struct End {
    /// Its name.
    pub name: String,
    /// What its process was started with, and no other.
    pub argument: String,
}

/// All wires of a cluster; each agent's can be cut alone.
#[derive(Debug)]
pub struct Wires {
    cuts: watch::Sender<Cuts>,
    group: TaskGroup,
    agents: Vec<End>,
}

impl Wires {
    /// Wires for these agents, to no manager yet.
    pub fn new(agents: Vec<End>) -> Self {
        Self { cuts: watch::Sender::default(), group: crate::task_group("wires"), agents }
    }

    /// Leads what arrives at `from` to `to`. Needs an asynchronous runtime.
    ///
    /// # Errors
    /// When nobody can listen there.
    pub fn lead(&self, from: &str, to: &str) -> Result<()> {
        let listen = || -> io::Result<TcpListener> {
            let listener = std::net::TcpListener::bind(from)?;
            listener.set_nonblocking(true)?;
            TcpListener::from_std(listener)
        };
        let listener = listen().with_context(|| format!("cannot listen at {from} for agents"))?;
        let (to, group, agents) = (to.to_owned(), self.group.clone(), self.agents.clone());
        let cuts = self.cuts.subscribe();
        self.group.spawn(TaskKind::critical("wire"), async move {
            while let Ok((near, _)) = listener.accept().await {
                // An agent that is gone already has no use for a wire.
                let Some(agent) = owner(&near, &agents) else { continue };
                let wire = Wire { agent, cuts: cuts.clone() };
                let to = to.clone();
                group.spawn(TaskKind::best_effort("connection"), async move {
                    // However it ends: both sides see it end.
                    drop(wire.join(near, &to).await);
                    Ok::<(), io::Error>(())
                });
            }
            Err::<(), _>("nobody can connect any more")
        });
        Ok(())
    }

    /// Cuts the wires of an agent to all managers.
    pub fn cut(&self, agent: &str, cut: Cut) {
        self.cuts.send_modify(|cuts| {
            cuts.insert(agent.to_owned(), cut);
        });
    }

    /// Mends them.
    pub fn mend(&self, agent: &str) {
        self.cuts.send_modify(|cuts| {
            cuts.remove(agent);
        });
    }
}

/// One connection of an agent.
struct Wire {
    agent: String,
    cuts: watch::Receiver<Cuts>,
}

impl Wire {
    async fn join(mut self, near: TcpStream, to: &str) -> io::Result<()> {
        self.let_through().await?;
        let far = tokio::time::timeout(DIAL, TcpStream::connect(to)).await??;
        for end in [&near, &far] {
            end.set_nodelay(true)?;
        }
        let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
        let up = Wire { agent: self.agent.clone(), cuts: self.cuts.clone() };
        let down = Wire { agent: self.agent.clone(), cuts: self.cuts.clone() };
        tokio::select! {
            both = async { tokio::try_join!(up.carry(near_in, far_out), down.carry(far_in, near_out)) } => both.map(drop),
            _ = self.cuts.wait_for(|cuts| cuts.get(&self.agent) == Some(&Cut::Broken)) => Ok(()),
        }
    }

    async fn carry(mut self, mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let read = from.read(&mut buffer).await;
            // The end of a connection does not get through a cut wire either.
            self.let_through().await?;
            let arrived = buffer.get(..read?).unwrap_or_default();
            if arrived.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(arrived).await?;
        }
    }

    /// Waits for as long as the wire is cut in silence.
    async fn let_through(&mut self) -> io::Result<()> {
        let open = self.cuts.wait_for(|cuts| cuts.get(&self.agent) != Some(&Cut::Silent)).await;
        let open = open.map_err(|_| io::Error::from(io::ErrorKind::ConnectionAborted))?;
        match open.get(&self.agent) {
            Some(Cut::Broken) => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            Some(Cut::Silent) | None => Ok(()),
        }
    }
}

/// Which agent holds the other end, by the word of the kernel.
fn owner(near: &TcpStream, agents: &[End]) -> Option<String> {
    let (own, peer) = (near.local_addr().ok()?.port(), near.peer_addr().ok()?.port());
    let socket = format!("socket:[{}]", inode(&fs::read_to_string("/proc/net/tcp").ok()?, peer, own)?);
    let pids = fs::read_dir("/proc").ok()?.flatten().filter_map(|entry| {
        entry
            .file_name()
            .to_str()
            .filter(|name| name.bytes().all(|b| b.is_ascii_digit()))
            .map(ToOwned::to_owned)
    });
    pids.into_iter().find_map(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let agent = agents
            .iter()
            .find(|agent| line.split(|b| *b == 0).any(|arg| arg == agent.argument.as_bytes()))?;
        holds(&Path::new("/proc").join(&pid).join("fd"), &socket).then(|| agent.name.clone())
    })
}

fn holds(folder: &Path, socket: &str) -> bool {
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    links.into_iter().any(|link| fs::read_link(link.path()).is_ok_and(|target| target.as_os_str() == socket))
}

/// The socket from port `local` to port `remote`, in the kernel's table.
fn inode(table: &str, local: u16, remote: u16) -> Option<String> {
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let here = port(fields.get(1)?) == Some(local) && port(fields.get(2)?) == Some(remote);
        here.then(|| fields.get(9).map(|inode| (*inode).to_owned()))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bound of each wait.
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn a_socket_is_found_by_both_its_ports() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:4E20 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 x\n   \
                     1: 0100007F:C350 0100007F:4E20 01 00000000:00000000 00:00000000 00000000     0        0 88 1 x\n";
        assert_eq!(inode(table, 50_000, 20_000).as_deref(), Some("88"));
        assert_eq!(inode(table, 20_000, 50_000), None);
    }

    /// A wire from this process, which counts as the agent, to an echo; a connection over it, and one beside it.
    async fn echo() -> (Wires, TcpStream, TcpStream) {
        let far = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = far.local_addr().unwrap().to_string();
        let argument = std::env::args().next().unwrap();
        let wires = Wires::new(vec![End { name: "n1".to_owned(), argument }]);
        let group = wires.group.clone();
        wires.group.spawn(TaskKind::best_effort("echo"), async move {
            while let Ok((mut end, _)) = far.accept().await {
                group.spawn(TaskKind::best_effort("one"), async move {
                    let (mut from, mut to) = end.split();
                    tokio::io::copy(&mut from, &mut to).await.map(drop)
                });
            }
            Ok::<(), io::Error>(())
        });
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        wires.lead(&free, &to).unwrap();
        let near = TcpStream::connect(free).await.unwrap();
        (wires, near, TcpStream::connect(to).await.unwrap())
    }

    async fn hear(near: &mut TcpStream) -> u8 {
        tokio::time::timeout(LIMIT, near.read_u8()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn what_is_sent_over_a_silent_wire_arrives_when_it_is_mended() {
        let (wires, mut near, mut beside) = echo().await;
        near.write_u8(1).await.unwrap();
        assert_eq!(hear(&mut near).await, 1);
        wires.cut("n1", Cut::Silent);
        near.write_u8(2).await.unwrap();
        // What goes and comes beside the wire takes longer than it would take over a whole one.
        for n in 0..100 {
            beside.write_u8(n).await.unwrap();
            assert_eq!(hear(&mut beside).await, n);
        }
        let early = near.try_read(&mut [0]).unwrap_err();
        assert_eq!(early.kind(), io::ErrorKind::WouldBlock);
        wires.mend("n1");
        assert_eq!(hear(&mut near).await, 2);
    }

    #[tokio::test]
    async fn a_broken_wire_ends_its_connections() {
        let (wires, mut near, _beside) = echo().await;
        near.write_u8(1).await.unwrap();
        assert_eq!(hear(&mut near).await, 1);
        wires.cut("n1", Cut::Broken);
        let end = tokio::time::timeout(LIMIT, near.read_u8()).await.expect("the connection ends");
        assert!(end.is_err(), "{end:?}");
    }
}

//! A blocking client for the few commands the harness itself sends (INFO, BGSAVE, GET, SHUTDOWN).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use crate::error::{BenchError, Context, Result};
use crate::load::conn::Target;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

pub struct Client {
    stream: BufReader<Box<dyn Stream>>,
    address: String,
}

/// INFO's fields by name.
pub type Info = HashMap<String, String>;

const TIMEOUT: Duration = Duration::from_secs(120);

impl Client {
    pub fn connect(target: &Target) -> Result<Self> {
        let address = target.to_string();
        let stream = open(target).context(|| format!("connect to {address}"))?;
        Ok(Self { stream: BufReader::new(stream), address })
    }

    /// Sends a command and returns its reply; an error reply is returned as `Reply::Error`.
    pub fn request(&mut self, args: &[&str]) -> Result<Reply> {
        let mut request = format!("*{}\r\n", args.len());
        for arg in args {
            request.push_str(&format!("${}\r\n{arg}\r\n", arg.len()));
        }
        let address = self.address.clone();
        self.stream.get_mut().write_all(request.as_bytes()).context(|| format!("write to {address}"))?;
        self.read_reply()
    }

    /// As `request`, but an error reply is an error.
    pub fn call(&mut self, args: &[&str]) -> Result<Reply> {
        match self.request(args)? {
            Reply::Error(reply) => Err(BenchError::ErrorReply {
                peer: "the server".to_owned(),
                address: self.address.clone(),
                command: args.join(" "),
                reply,
            }),
            reply => Ok(reply),
        }
    }

    pub fn info(&mut self, section: &str) -> Result<Info> {
        let Reply::Bulk(text) = self.call(&["INFO", section])? else {
            return Err(BenchError::Failed(format!("{}: INFO did not answer with text", self.address)));
        };
        Ok(String::from_utf8_lossy(&text)
            .lines()
            .filter_map(|l| l.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect())
    }

    fn read_reply(&mut self) -> Result<Reply> {
        let line = self.read_line()?;
        let kind = line.get(..1).unwrap_or("");
        let rest = &line[kind.len()..];
        let number = || {
            rest.parse::<i64>()
                .map_err(|_| BenchError::Failed(format!("{}: bad reply {line:?}", self.address)))
        };
        match kind {
            "+" => Ok(Reply::Simple(rest.to_owned())),
            "-" => Ok(Reply::Error(rest.to_owned())),
            ":" => Ok(Reply::Integer(number()?)),
            "$" if rest == "-1" => Ok(Reply::Nil),
            "*" if rest == "-1" => Ok(Reply::Nil),
            "$" => {
                let mut bytes = vec![0; number()? as usize + 2];
                let address = self.address.clone();
                self.stream.read_exact(&mut bytes).context(|| format!("read from {address}"))?;
                bytes.truncate(bytes.len() - 2);
                Ok(Reply::Bulk(bytes))
            }
            "*" => (0..number()?).map(|_| self.read_reply()).collect::<Result<_>>().map(Reply::Array),
            _ => Err(BenchError::Failed(format!("{}: not a RESP2 reply: {line:?}", self.address))),
        }
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        let address = self.address.clone();
        let n = self.stream.read_line(&mut line).context(|| format!("read from {address}"))?;
        if n == 0 {
            return Err(BenchError::Closed { address, in_flight: 1 });
        }
        Ok(line.trim_end().to_owned())
    }
}

fn open(target: &Target) -> std::io::Result<Box<dyn Stream>> {
    match target {
        Target::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port))?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(Box::new(stream))
        }
        Target::Unix(path) => {
            let stream = UnixStream::connect(path)?;
            stream.set_read_timeout(Some(TIMEOUT))?;
            Ok(Box::new(stream))
        }
    }
}

/// A numeric INFO field; `None` if the server has none of that name.
pub fn info_number(info: &Info, field: &str) -> Option<f64> {
    info.get(field).and_then(|v| v.parse().ok())
}

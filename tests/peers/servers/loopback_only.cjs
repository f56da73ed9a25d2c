// Preloaded into servers that would listen on every address of the machine: they listen on loopback.
"use strict";
const { Server } = require("node:net");
const listen = Server.prototype.listen;
Server.prototype.listen = function (port, ...rest) {
  return /^\d+$/.test(String(port)) ? listen.call(this, { port: Number(port), host: "127.0.0.1" }, ...rest) : listen.call(this, port, ...rest);
};

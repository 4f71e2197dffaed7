// Keeps a share of the old space alive, and allocates for some seconds. Arguments: share, seconds.
const v8 = require("v8");
const [share, seconds] = process.argv.slice(2).map(Number);
const most = v8.getHeapStatistics().heap_size_limit;
const create = (at) => ({ at, text: "x" + at, list: [at, at + 1, at + 2] });
const alive = [];
let count = 0;
while (v8.getHeapStatistics().used_heap_size < share * most) for (let i = 0; i < 2000; i++) alive.push(create(count++));
const end = Date.now() + 1000 * seconds;
let latest;
while (Date.now() < end)
  for (let i = 0; i < 10000; i++) {
    latest = create(i);
    if (i % 50 === 0) alive[Math.floor(Math.random() * alive.length)] = create(i);
  }

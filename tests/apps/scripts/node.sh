cat > program.js <<'EOF'
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const fs = require('fs/promises');
const zlib = require('zlib');
const { promisify } = require('util');

if (!isMainThread) {
  parentPort.on('message', (step) => {
    let digest = crypto.createHash('sha256').update(`${workerData} ${step}`).digest();
    for (let number = 0; number < 150000; number++) digest = crypto.createHash('sha256').update(digest).digest();
    parentPort.postMessage(digest.toString('hex'));
  });
} else {
  const workers = [0, 1].map((number) => new Worker(__filename, { workerData: number }));
  const ask = (worker, step) => new Promise((resolve) => { worker.once('message', resolve); worker.postMessage(step); });
  (async () => {
    const kept = [];
    for (let step = 0; step < 40; step++) {
      const digests = await Promise.all(workers.map((worker) => ask(worker, step)));
      const packed = await promisify(zlib.gzip)(digests.join(' ').repeat(2000));
      await fs.writeFile('packed', packed);
      kept.push(digests, (await promisify(zlib.gunzip)(await fs.readFile('packed'))).length);
      await new Promise((resolve) => setTimeout(resolve, 20));
      console.log(step, digests.join(' '));
    }
    await fs.writeFile('result.json', JSON.stringify(kept));
    await Promise.all(workers.map((worker) => worker.terminate()));
  })();
}
EOF
node program.js

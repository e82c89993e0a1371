// What node-redis does with a drive: resp_client.js PORT
const { createClient } = require('redis');

function demand(is, what) {
  if (!is) throw new Error(what);
}

async function use(port) {
  const client = createClient({ url: `redis://1:asdfasdf@127.0.0.1:${port}` });
  client.on('error', (error) => { throw error; });
  await client.connect();
  await client.set('js', 'v');
  demand(await client.get('js') === 'v', 'get');
  await client.hSet('js-hash', { a: '1', b: '2' });
  demand(JSON.stringify(await client.hGetAll('js-hash')) === '{"a":"1","b":"2"}', 'hash');
  const numbers = [...Array(500).keys()];
  const answers = await Promise.all(numbers.map((i) => client.set(`js-many-${i}`, `${i}`)));
  demand(answers.every((answer) => answer === 'OK'), 'many at once');
  const found = new Set();
  for await (const key of client.scanIterator({ MATCH: 'js-many-*', COUNT: 33 })) found.add(key);
  demand(found.size === 500, `a scan of ${found.size}`);
  const [sum, read] = await client.multi().incrBy('js-number', 7).get('js-number').exec();
  demand(`${sum}` === read, 'transaction');
  await client.set('js-large', 'x'.repeat(1 << 20));
  demand((await client.strLen('js-large')) === 1 << 20, 'large');
  await client.quit();
}

use(process.argv[2]).catch((error) => {
  console.error(error);
  process.exit(1);
});

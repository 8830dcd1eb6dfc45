// A page that is opened from a file may start no worker: a hidden frame runs the search in its place.

class FrameWorker extends EventTarget {
  constructor(url) {
    super();
    const frame = document.createElement("iframe");
    frame.hidden = true;
    this.inside = new Promise((ready) => {
      frame.addEventListener("load", () => this.fill(frame.contentWindow, url, ready), { once: true });
    });
    document.body.append(frame);
  }

  // What the script tells its starter comes out as messages of this worker.
  fill(inside, url, ready) {
    inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
    const script = inside.document.createElement("script");
    script.src = url;
    script.addEventListener("load", () => ready(inside));
    inside.document.head.append(script);
  }

  postMessage(data) {
    this.inside.then((inside) => inside.dispatchEvent(new inside.MessageEvent("message", { data })));
  }
}

if (location.protocol === "file:") window.Worker = FrameWorker;

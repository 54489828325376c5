"""Batch runner that reads and writes files in OpenAI's batch format, as `vllm run-batch` does."""

import json
from pathlib import Path

from helpers.servers.loopback import Received
from helpers.servers.openai_server import OpenAIServer


class BatchRunner(OpenAIServer):
    """Answers files of requests; it opens no connection.

    Args:
        reply: answers chat requests.
    """

    def __init__(self, reply):
        super().__init__(reply)
        self._server.server_close()

    def run(self, source, target, *, leave_out=(), status=200):
        lines = [json.loads(line) for line in Path(source).read_text(encoding="utf-8").splitlines()]
        with Path(target).open("w", encoding="utf-8") as file:
            for place, line in enumerate(lines):
                if place not in leave_out:
                    file.write(json.dumps(self.reply_to(line, status), ensure_ascii=False) + "\n")
        return target

    def reply_to(self, line, status):
        assert line.keys() == {"custom_id", "method", "url", "body"}
        assert line["method"] == "POST"
        body = json.loads(self.routes[line["url"]](Received(line["url"], {}, line["body"], b"")).content)
        response = {"status_code": status, "request_id": "vllm-batch", "body": body}
        return {"id": "vllm-1", "custom_id": line["custom_id"], "response": response, "error": None}

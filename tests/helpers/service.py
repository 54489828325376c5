"""A FastAPI service with a streaming RAG chain; its callback judges with its own model."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda, RunnablePassthrough
from langchain_openai import ChatOpenAI

from langchain_rageval import RagEvalCallback, RetryPolicy, faithfulness
from langchain_rageval.sinks import SqliteSink


class Search(BaseRetriever):
    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [Document("Munich was founded in 1158 by Henry the Lion."), Document(f"The question was {query}.")]


model = ChatOpenAI(base_url=os.environ["MODEL_URL"], api_key="sk-test", model="m", max_retries=0)
callback = RagEvalCallback(
    faithfulness(model), sample_rate=1.0, sinks=[SqliteSink(os.environ["SCORES"])], retry=RetryPolicy(attempts=1)
)
joined = RunnableLambda(lambda documents: "\n".join(document.page_content for document in documents))
prompt = ChatPromptTemplate([("system", "Answer from this: {context}"), ("human", "{question}")])
found = {"context": Search() | joined, "question": RunnablePassthrough()}
chain = (found | prompt | model | StrOutputParser()).with_config(callbacks=[callback])


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    yield
    callback.close(60)


app = FastAPI(lifespan=lifespan)


@app.get("/ask")
async def ask(q: str) -> StreamingResponse:
    return StreamingResponse(chain.astream(q), media_type="text/plain")


@app.get("/stats")
def stats() -> dict[str, int]:
    return callback.stats()


@app.post("/flush")
def flush() -> bool:
    return callback.flush(60)
